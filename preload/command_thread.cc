#include "preload/command_thread.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "preload/agent.h"
#include "preload/proc_maps.h"

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif
#ifndef SYS_close_range
#define SYS_close_range 436
#endif

// Weak, because a program with an old glibc may not load libpthread.
extern "C" {
[[gnu::weak]] int pthread_create(pthread_t*, const pthread_attr_t*, void* (*)(void*),
                                 void*) noexcept;
[[gnu::weak]] int pthread_detach(pthread_t) noexcept;
[[gnu::weak]] int pthread_attr_init(pthread_attr_t*) noexcept;
[[gnu::weak]] int pthread_attr_destroy(pthread_attr_t*) noexcept;
[[gnu::weak]] int pthread_attr_setstacksize(pthread_attr_t*, std::size_t) noexcept;
}

namespace evenkeel::preload {
namespace {

constexpr std::size_t kStackBytes = std::size_t{256} << 10;
// The lock is held for one piece at a time, so that munmap in the program does not wait longer.
constexpr std::uint64_t kPieceBytes = std::uint64_t{4} << 20;
constexpr unsigned kUnshare = 2;  // CLOSE_RANGE_UNSHARE

// Gives this thread its own empty descriptor table. Then the program cannot close the thread's
// descriptors, and the thread keeps none of the program's open. Returns false if the kernel refuses
// (before Linux 5.9).
bool take_own_descriptors() { return raw(SYS_close_range, 0U, ~0U, kUnshare) == 0; }

// Asks for short time slices: the scheduler then runs the thread soon after it wakes, even if the
// program keeps every core busy (Linux 6.12; older kernels refuse or ignore it).
void ask_for_short_slices() {
  struct {  // sched_attr, which libc does not declare
    std::uint32_t size, policy;
    std::uint64_t flags;
    std::int32_t nice;
    std::uint32_t priority;
    std::uint64_t runtime, deadline, period;
  } attributes{};
  if (raw(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0) return;
  if (attributes.policy != 0) return;  // not SCHED_OTHER: the program chose another policy
  attributes.size = sizeof attributes;
  attributes.runtime = 100'000;  // nanoseconds, the minimum
  raw(SYS_sched_setattr, 0, &attributes, 0);
}

// A copy of one range of a command: the shared memory may change meanwhile.
struct Wanted {
  std::uint32_t kind, advice, mapping, generation;
  Range range;
};

struct Outcome {
  int error = 0;
  bool dropped = false;
};

// Carries out the command for a part of the range. Called with the lock held.
Outcome carry_out_piece(const Wanted& wanted, Range piece, ProcMaps& maps) {
  Entry entry;
  MappingTable& table = agent.table();
  if (!table.find(wanted.mapping, wanted.generation, entry) || wanted.range.begin < entry.begin ||
      wanted.range.end > entry.end) {
    return {ESTALE};
  }
  // The program may have called madvise after the tool read the flags. Its own advice stays.
  const bool tool_advises =
      wanted.kind == shared_table::kLimitReadahead ||
      (wanted.kind == shared_table::kAdvise && wanted.advice != MADV_NOHUGEPAGE);
  if (tool_advises && (entry.flags & shared_table::kAdvised) != 0) return {};
  // Between this look and madvise, the program can still call munmap and mmap as raw system calls,
  // but not through a hook.
  const ProcMaps::Finding found = maps.look(piece, entry);
  if (!found.readable) return {ENODATA};
  if (!found.same) {
    table.remove_slot(wanted.mapping);
    notify_tool(agent.shared());
    return {ESTALE};
  }
  if (entry.device == 0) table.set_device(wanted.mapping, found.device);
  const bool shared = (entry.flags & shared_table::kShared) != 0;
  if (found.writable && (entry.flags & shared_table::kWritable) == 0) {
    table.add_flags_to_slot(wanted.mapping, shared_table::kWritable);
    entry.flags |= shared_table::kWritable;
  }
  const bool writable = (entry.flags & shared_table::kWritable) != 0;
  int advice = static_cast<int>(wanted.advice);
  // MADV_DONTNEED would discard the changes of a private mapping.
  if (wanted.kind == shared_table::kRelease) {
    advice = shared || !writable ? MADV_DONTNEED : MADV_PAGEOUT;
  }
  if (wanted.kind == shared_table::kPageOut) advice = MADV_PAGEOUT;
  // For a fault in such a mapping the kernel fetches the size of one huge page, whatever the
  // readahead setting is. If the file system has no large pages, it fetches small ones.
  if (wanted.kind == shared_table::kLimitReadahead) {
    const long refused = raw(SYS_madvise, piece.begin, piece.end - piece.begin, MADV_HUGEPAGE);
    if (refused != 0) return {static_cast<int>(-refused)};
    advice = MADV_RANDOM;
  }
  const long result = raw(SYS_madvise, piece.begin, piece.end - piece.begin, advice);
  return {static_cast<int>(-result), result == 0 && advice == MADV_DONTNEED};
}

Outcome carry_out(const Wanted& wanted, ProcMaps& maps) {
  if (wanted.range.begin >= wanted.range.end || wanted.range.begin % page_size() != 0 ||
      wanted.range.end % page_size() != 0) {
    return {EINVAL};
  }
  if (wanted.kind == shared_table::kLimitReadahead) {
    const Locked locked(agent.lock());
    return carry_out_piece(wanted, wanted.range, maps);
  }
  if (wanted.kind == shared_table::kAdvise) {
    const bool known = wanted.advice == MADV_NORMAL || wanted.advice == MADV_RANDOM ||
                       wanted.advice == MADV_SEQUENTIAL || wanted.advice == MADV_NOHUGEPAGE;
    if (!known) return {EINVAL};
    const Locked locked(agent.lock());
    return carry_out_piece(wanted, wanted.range, maps);
  }
  const bool page_out = wanted.kind == shared_table::kPageOut;
  if (wanted.kind != shared_table::kRelease && !page_out) return {EINVAL};
  Outcome outcome;
  for (std::uint64_t at = wanted.range.begin; at < wanted.range.end && outcome.error == 0;) {
    if (agent.stopping()) return {ESTALE};  // leave() waits only for the piece before
    const std::uint64_t left = wanted.range.end - at;
    const Range piece{at, at + (left < kPieceBytes ? left : kPieceBytes)};
    // Writing waits for the disk, so it is done without the lock. It does not change what the
    // program sees, whatever is mapped there. If nothing is mapped, it fails.
    if (page_out) raw(SYS_msync, piece.begin, piece.end - piece.begin, MS_SYNC);
    const Locked locked(agent.lock());
    const Outcome now = carry_out_piece(wanted, piece, maps);
    outcome.error = now.error;
    outcome.dropped |= now.dropped;
    at = piece.end;
  }
  return outcome;
}

// Whether all threads of the program have ended, the main thread by pthread_exit. The main thread
// is then a zombie until the last thread, which is this one, has ended. In "123 (name) Z 1 ...",
// the 17th word after Z is the number of threads.
bool is_last() {
  const long fd = raw_open("/proc/self/stat", O_RDONLY);
  if (fd < 0) return false;
  char text[512];
  const long got = raw_read(fd, text, sizeof text);
  raw_close(fd);
  long at = got - 1;
  while (at >= 0 && text[at] != ')') --at;
  if (at < 0 || at + 2 >= got || text[at + 2] != 'Z') return false;
  at += 2;
  for (int words = 0; words < 17; ++words) {
    while (at < got && text[at] != ' ') ++at;
    ++at;
  }
  return at + 1 < got && text[at] == '2' && text[at + 1] == ' ';
}

void carry_out_all(shared_table::Command& command, ProcMaps& maps) {
  const std::uint32_t kind = command.kind, advice = command.advice;
  std::uint32_t count = command.count;
  if (count > shared_table::kCommandRanges) count = shared_table::kCommandRanges;
  for (std::uint32_t i = 0; i < count; ++i) {
    shared_table::CommandRange& range = command.ranges[i];
    const Outcome outcome =
        carry_out({kind, advice, range.mapping, range.generation, {range.begin, range.end}}, maps);
    range.result = outcome.error;
    range.dropped = outcome.dropped ? 1 : 0;
  }
}

void serve(shared_table::Process& process, bool own_descriptors) {
  ProcMaps maps(own_descriptors);
  shared_table::Command& command = process.command;
  std::uint32_t seen = command.done.load();
  process.thread.store(own_thread_number());
  notify_tool(agent.shared());
  for (;;) {
    if (agent.stopping()) break;
    const std::uint32_t posted = command.posted.load(std::memory_order_acquire);
    if (posted == seen) {
      const timespec second{1, 0};
      if (!futex_wait(command.posted, seen, Among::kProcesses, &second) && is_last()) break;
      continue;
    }
    carry_out_all(command, maps);
    seen = posted;
    command.done.store(posted, std::memory_order_release);
    futex_wake(command.done, 1 << 30, Among::kProcesses);
  }
  process.thread.store(0);
}

void* run(void* process) {
  agent.thread_begins();
  if (!agent.stopping()) {
    raw(SYS_prctl, PR_SET_NAME, "evenkeel-guard", 0L, 0L, 0L);
    ask_for_short_slices();
    serve(*static_cast<shared_table::Process*>(process), take_own_descriptors());
  }
  agent.thread_ends();
  return nullptr;
}

}  // namespace

int start_command_thread(shared_table::Process& process) {
  if (&::pthread_create == nullptr || &::pthread_detach == nullptr) return ENOSYS;
  pthread_t thread;
  int error = ENOMEM;
  pthread_attr_t small;
  if (&::pthread_attr_init != nullptr && &::pthread_attr_destroy != nullptr &&
      &::pthread_attr_setstacksize != nullptr && ::pthread_attr_init(&small) == 0) {
    error = ::pthread_attr_setstacksize(&small, kStackBytes);
    if (error == 0) error = ::pthread_create(&thread, &small, run, &process);
    ::pthread_attr_destroy(&small);
  }
  // Programs with much thread-local memory need a larger stack.
  if (error != 0) error = ::pthread_create(&thread, nullptr, run, &process);
  if (error == 0) ::pthread_detach(thread);
  return error;
}

}  // namespace evenkeel::preload
