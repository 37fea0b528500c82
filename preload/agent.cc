#include "preload/agent.h"

#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <initializer_list>

#include "preload/command_thread.h"
#include "preload/raw_calls.h"
#include "preload/say.h"

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

extern "C" [[gnu::weak]] unsigned long getauxval(unsigned long) noexcept;

namespace evenkeel::preload {

constinit Agent agent;

namespace {

// Values of the word in the page that the kernel clears in a child of fork.
enum : std::uint32_t { kForked = 0, kRenewing = 1, kOwn = 2 };

shared_table::Word* page_emptied_by_fork() {
  const long at = raw(SYS_mmap, nullptr, page_size(), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0L);
  if (at < 0 && at > -4096) return nullptr;
  if (raw(SYS_madvise, at, page_size(), MADV_WIPEONFORK) != 0) {
    raw(SYS_munmap, at, page_size());
    return nullptr;
  }
  auto* word = reinterpret_cast<shared_table::Word*>(at);  // NOLINT(performance-no-int-to-ptr)
  word->store(kOwn);
  return word;
}

bool begins(const char* text, const char* with) {
  while (*with != 0) {
    if (*text++ != *with++) return false;
  }
  return true;
}

bool ends(const char* text, std::uint64_t length, const char* with, std::uint64_t with_length) {
  return length >= with_length &&
         __builtin_memcmp(text + length - with_length, with, with_length) == 0;
}

// Writes the path of the file and returns its length, or 0 if such a file is not guarded. A deleted
// file has the path it had before.
std::uint64_t name_of(int fd, char* path, std::uint64_t size) {
  char link[40] = "/proc/thread-self/fd/";  // not "self": the main thread may have ended
  char digits[12];
  int count = 0;
  for (int rest = fd; rest > 0 || count == 0; rest /= 10) {
    digits[count++] = static_cast<char>('0' + rest % 10);
  }
  char* at = link + sizeof "/proc/thread-self/fd/" - 1;
  while (count > 0) *at++ = digits[--count];
  *at = 0;
  const long got = raw_readlink(link, path, size - 1);
  if (got <= 0 || static_cast<std::uint64_t>(got) >= size - 1) return 0;
  path[got] = 0;
  constexpr char kDeleted[] = " (deleted)";
  for (const char* other : {"/dev/", "/proc/", "/sys/", "/memfd:"}) {
    if (begins(path, other)) return 0;
  }
  if (path[0] != '/') return 0;
  return ends(path, got, kDeleted, sizeof kDeleted - 1) ? got - (sizeof kDeleted - 1) : got;
}

}  // namespace

std::uint64_t page_size() {
  const std::uint64_t size = &::getauxval != nullptr ? ::getauxval(AT_PAGESZ) : 0;
  return size != 0 ? size : 4096;
}

void Agent::changed() {
  if (shared_table::SharedTable* table = shared_.load(std::memory_order_acquire)) {
    notify_tool(*table);
  }
}

bool Agent::touches(Range range) {
  notice_fork();
  return table_.touches(range);
}

// A child that was not created by fork() (but by _Fork, by clone, or inside the C library) is
// noticed at its first call of a hook. It may be inside an allocator, so no thread is started here.
// The thread is started, and its mappings are registered, when it first maps a file.
void Agent::notice_fork() {
  shared_table::Word* own = own_.load(std::memory_order_acquire);
  if (!own || own->load(std::memory_order_acquire) == kOwn) return;
  const BlockedSignals blocked(kAllSignals);
  std::uint32_t seen = kForked;
  if (own->compare_exchange_strong(seen, kRenewing)) {
    renew();
    own->store(kOwn, std::memory_order_release);
    return;
  }
  while (own->load(std::memory_order_acquire) != kOwn) raw(SYS_sched_yield);
}

void Agent::renew() {
  lock_.renew();
  table_.after_fork();
  forget_registration(registration_);
  registration_ = {};
  refused_ = false;
  leaving_.store(false);
  thread_id_.store(0);
  thread_ended_.store(0);
  thread_.store(kNoThread);
}

void Agent::forked() {
  const KeepErrno keep;
  if (own_.load()) {
    notice_fork();
  } else {
    renew();  // the child has no other threads yet
  }
  if (phase_.load() != kAttached) return;
  {
    const Locked locked(lock_);
    if (table_.empty() || !has_registration()) return;
  }
  changed();
  start_thread();
}

void Agent::forget(Range range) {
  if (!touches(range)) return;
  {
    const Locked locked(lock_);
    table_.remove(range);
  }
  changed();
}

void Agent::note(Range range, std::uint32_t flags) {
  if (!touches(range)) return;
  {
    const Locked locked(lock_);
    table_.add_flags(range, flags);
  }
  changed();
}

std::uint32_t Agent::take(Range range) {
  if (!touches(range)) return 0;
  std::uint32_t taken;
  {
    const Locked locked(lock_);
    taken = table_.take(range);
  }
  if (taken != 0) changed();
  return taken;
}

void Agent::settle(std::uint32_t taken, bool gone) {
  if (taken == 0) return;
  const Locked locked(lock_);
  if (gone) {
    table_.drop(taken);
  } else {
    table_.give_back(taken);
    changed();
  }
}

void Agent::moved(std::uint32_t taken, Range from, Range to, bool stays) {
  if (taken == 0) {
    forget(to);
    return;
  }
  {
    const Locked locked(lock_);
    table_.move(taken, from, to, stays);
  }
  changed();
}

void Agent::doubled(std::uint64_t from, Range to) {
  forget(to);
  if (!touches({from, from + 1})) return;
  {
    const Locked locked(lock_);
    Entry entry;
    if (!table_.at(from, entry)) return;
    entry.offset += from - entry.begin;
    entry.begin = to.begin;
    entry.end = to.end;
    table_.insert(entry);
  }
  changed();
}

bool Agent::attached() {
  if (phase_.load(std::memory_order_acquire) != kFresh) return phase_.load() == kAttached;
  const Locked locked(lock_);
  if (phase_.load() != kFresh) return phase_.load() == kAttached;
  remember_environment();
  shared_table::SharedTable* table = open_shared_table();
  // A filter was installed before exec.
  if (table && seccomp_filters() > table->seccomp_filters) {
    shared_.store(table, std::memory_order_release);
    sandboxed_.store(true);
    phase_.store(kInert, std::memory_order_release);
    return false;
  }
  shared_.store(table, std::memory_order_release);
  if (table) own_.store(page_emptied_by_fork(), std::memory_order_release);
  phase_.store(table ? kAttached : kInert, std::memory_order_release);
  return table != nullptr;
}

bool Agent::may_be_registered(const NewMapping& mapping) {
  constexpr int kNever = MAP_ANONYMOUS | MAP_HUGETLB | MAP_LOCKED | MAP_GROWSDOWN | MAP_STACK;
  return mapping.fd >= 0 && (mapping.flags & kNever) == 0 &&
         (mapping.protection & PROT_EXEC) == 0 && phase_.load(std::memory_order_relaxed) != kInert;
}

void Agent::mapped(const NewMapping& mapping) {
  const KeepErrno keep;
  forget(mapping.range);
  const bool file = mapping.fd >= 0 && (mapping.protection & PROT_EXEC) == 0;
  if (file && sandboxed_.load(std::memory_order_acquire) &&
      mapping.range.end - mapping.range.begin >= shared().least_bytes) {
    count_sandboxed();
  }
  if (!may_be_registered(mapping)) return;
  FileFacts facts;
  if (!file_facts(mapping.fd, facts) || !facts.regular) return;
  if (!attached()) {
    if (sandboxed_.load() && mapping.range.end - mapping.range.begin >= shared().least_bytes) {
      count_sandboxed();
    }
    return;
  }
  if (mapping.range.end - mapping.range.begin < shared().least_bytes) return;
  register_mapping(mapping, facts);
}

// Registers the process with all its known mappings, unless it is registered. Called with the lock
// held.
bool Agent::has_registration() {
  if (registration_.process) return true;
  if (refused_) return false;
  registration_ = register_process(shared());
  refused_ = registration_.process == nullptr;
  if (refused_) return false;
  table_.publish_on({registration_.process, registration_.mappings, &shared().lost_mappings});
  return true;
}

// Called with the lock held. Returns false if there was no room for the mapping.
bool Agent::publish(const NewMapping& mapping, const FileFacts& facts, std::uint32_t& advice) {
  const std::uint64_t length = name_of(mapping.fd, path_, sizeof path_);
  if (length == 0 || !has_registration()) return false;
  Entry entry;
  entry.begin = mapping.range.begin;
  entry.end = mapping.range.end;
  entry.offset = mapping.offset;
  entry.inode = facts.inode;
  entry.descriptor = static_cast<std::uint32_t>(mapping.fd);
  const int type = mapping.flags & 0xf;
  if (type != MAP_PRIVATE) entry.flags |= shared_table::kShared;
  if ((mapping.protection & PROT_WRITE) != 0) entry.flags |= shared_table::kWritable;
  for (int attempt = 0; attempt < 3; ++attempt) {
    const FileEntry file = register_file(shared(), facts, path_, length);
    if (!file.valid()) return false;
    entry.file = file.index;
    entry.file_generation = file.generation;
    table_.insert(entry);
    if (is_current(shared(), file)) {
      if (shared().files[file.index].random.load() != 0) advice = MADV_RANDOM;
      return true;
    }
    table_.remove(mapping.range);
  }
  shared().lost_mappings.fetch_add(1);
  return false;
}

void Agent::register_mapping(const NewMapping& mapping, const FileFacts& facts) {
  if (has_huge_pages(mapping.fd)) return;
  std::uint32_t advice = shared().first_advice;
  {
    const Locked locked(lock_);
    if (!publish(mapping, facts, advice)) return;
    if (advice != 0) {
      raw(SYS_madvise, mapping.range.begin, mapping.range.end - mapping.range.begin, advice);
    }
  }
  changed();
  start_thread();
}

// Makes no system call. The tool reads the counter ten times a second.
void Agent::count_sandboxed() {
  if (!sandbox_counted_.exchange(true)) shared().sandboxed_processes.fetch_add(1);
}

void Agent::thread_begins() { thread_id_.store(static_cast<std::uint32_t>(raw(SYS_gettid))); }

void Agent::thread_ends() {
  thread_ended_.store(1);
  futex_wake(thread_ended_, 1 << 30, Among::kThreads);
}

bool Agent::has_only_other_thread() const {
  if (thread_.load() != kRunning || raw(SYS_getpid) != thread_process_.load()) return false;
  struct ::statx task;  // has a link for each thread, and two more as every folder
  const long error = raw(SYS_statx, AT_FDCWD, "/proc/self/task", 0, STATX_NLINK, &task);
  return error != 0 || (task.stx_mask & STATX_NLINK) == 0 || task.stx_nlink <= 2 + 2;
}

// Waits a little for the thread. After thread_ends() the thread still runs code of the C library,
// which makes system calls, too. This waits for them, but not for ever, because the thread ID may
// be reused.
bool Agent::thread_has_ended() {
  constexpr int kRounds = 100'000;  // of 0.1 ms
  const long pid = raw(SYS_getpid);
  if (pid != thread_process_.load()) return true;  // a child by clone or vfork has no such thread
  if (thread_ended_.load() == 0) {
    futex_wake(served_.load()->command.posted, 1 << 30, Among::kProcesses);
    const timespec wait{0, 1'000'000};
    futex_wait(thread_ended_, 0, Among::kThreads, &wait);
    return false;
  }
  const long thread = static_cast<long>(thread_id_.load());
  for (int i = 0; i < kRounds && raw(SYS_tgkill, pid, thread, 0) == 0; ++i) {
    const timespec pause{0, 100'000};
    raw(SYS_nanosleep, &pause, nullptr);
  }
  return true;
}

// Waits until the thread has ended, so that a filter for all threads does not apply to it. The
// thread may not have begun yet, or another thread of the program may be starting it now. It may
// also be writing to the disk for a command, which must finish first.
void Agent::stop_thread() {
  leaving_.store(true);
  for (;;) {
    std::uint32_t seen = kNoThread;
    if (thread_.compare_exchange_strong(seen, kNoLonger) || seen == kNoLonger) return;
    if (seen == kRunning && thread_has_ended()) {
      thread_.store(kNoLonger);
      return;
    }
    if (seen == kStarting) raw(SYS_sched_yield);
  }
}

void Agent::leave() {
  const KeepErrno keep;
  if (!attached()) return;
  notice_fork();
  // A child of vfork that is about to call exec: all this memory belongs to its parent.
  const bool is_child = thread_.load() == kRunning && raw(SYS_getpid) != thread_process_.load();
  if (is_child && own_.load()) return;
  stop_thread();
  const Locked locked(lock_);
  if (!table_.empty()) count_sandboxed();
  phase_.store(kInert);
  sandboxed_.store(true);
  own_.store(nullptr);
  table_.clear();
  table_.publish_on({});
  if (registration_.process) {
    registration_.process->state.store(shared_table::kEmpty);
    forget_registration(registration_);
    registration_ = {};
  }
  refused_ = true;  // other threads may be about to register a mapping
  changed();
}

bool Agent::ask_tool_to_close_files() {
  const KeepErrno keep;
  if (!attached()) return false;
  constexpr int kRounds = 50;
  const std::uint32_t request = shared().unmount_requests.fetch_add(1) + 1;
  changed();
  for (int i = 0; i < kRounds; ++i) {
    const std::uint32_t answered = shared().unmount_answers.load(std::memory_order_acquire);
    if (static_cast<std::int32_t>(answered - request) >= 0) return true;
    const timespec wait{0, 10'000'000};
    futex_wait(shared().unmount_answers, answered, Among::kProcesses, &wait);
  }
  return false;
}

void Agent::start_thread() {
  if (thread_.load(std::memory_order_acquire) != kNoThread) return;
  // The thread inherits the blocked signals. Also, no signal handler that waits for the thread can
  // run here while it is being started.
  const BlockedSignals blocked(kProgramSignals);
  std::uint32_t seen = kNoThread;
  if (!thread_.compare_exchange_strong(seen, kStarting)) return;
  served_.store(registration_.process);  // leave() waits while the state is kStarting
  thread_process_.store(raw(SYS_getpid));
  const int error = start_command_thread(*registration_.process);
  if (error == 0) {
    thread_.store(kRunning);
    return;
  }
  say_unguarded("no thread can be started", error);
  {
    const Locked locked(lock_);
    phase_.store(kInert);
    table_.clear();
    table_.publish_on({});
    registration_.process->state.store(shared_table::kEmpty);
  }
  changed();
  thread_.store(kNoLonger);
}

}  // namespace evenkeel::preload
