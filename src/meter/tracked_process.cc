#include "meter/tracked_process.h"

#include <linux/kcmp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string>
#include <string_view>

#include "base/sys.h"
#include "base/text_file.h"
#include "meter/proc.h"

namespace evenkeel {
namespace {

std::uint64_t above_zero(std::uint64_t value, std::uint64_t less) {
  return value - std::min(value, less);
}

}  // namespace

void Tally::add(const Tally& other) {
  major_faults += other.major_faults;
  minor_faults += other.minor_faults;
  ticks += other.ticks;
  disk_read += other.disk_read;
}

void Tally::raise_to(const Tally& other) {
  major_faults = std::max(major_faults, other.major_faults);
  minor_faults = std::max(minor_faults, other.minor_faults);
  ticks = std::max(ticks, other.ticks);
  disk_read = std::max(disk_read, other.disk_read);
}

Tally Tally::above(const Tally& before) const {
  return {above_zero(major_faults, before.major_faults),
          above_zero(minor_faults, before.minor_faults), above_zero(ticks, before.ticks),
          above_zero(disk_read, before.disk_read)};
}

TrackedProcess::TrackedProcess(pid_t pid, pid_t parent)
    : pid_(pid),
      lender_(parent),
      stat_file_(open_proc(pid, "stat")),
      status_file_(open_proc(pid, "status")) {}

std::optional<TrackedProcess> TrackedProcess::open(pid_t pid, pid_t parent) {
  TrackedProcess process(pid, parent);
  if (!process.stat_file_ || !process.status_file_) {
    if (errno == ENOENT) errno = ESRCH;
    return std::nullopt;
  }
  process.io_file_ = Fd(open_proc(pid, "io"));
  if (!process.io_file_ && (errno == EMFILE || errno == ENFILE)) return std::nullopt;
  process.read();
  for (std::size_t kind = 0; kind < kResidentKinds.size(); ++kind) {
    process.pages_[kind] = ResidentPages(process.memory_.*kResidentKinds[kind]);
  }
  process.inheritance_ = 0;  // ignore children that ended before
  // The PID may have been given to another process between finding and opening.
  const bool reused = parent != 0 && process.parent() != parent;
  if (process.gone_ || reused) {
    errno = ESRCH;
    return std::nullopt;
  }
  return process;
}

void TrackedProcess::forked_from(std::uint64_t anon) {
  for (std::size_t kind = 0; kind < kResidentKinds.size(); ++kind) {
    if (kResidentKinds[kind] == &ProcessMemory::anon)
      pages_[kind] = ResidentPages(memory_.anon, anon);
  }
}

void TrackedProcess::read() {
  was_gone_ = gone_;
  if (gone_) return;
  ProcText text;
  const auto stat = parse_stat(read_again(stat_file_.get(), text));
  if (!stat) {
    gone_ = true;
    memory_ = {};
    update_pages();
    return;
  }
  inheritance_ = above_zero(stat->child_minor_faults, stat_.child_minor_faults);
  stat_ = *stat;
  if (io_file_) {
    if (const auto read = parse_io(read_again(io_file_.get(), text))) disk_read_ = *read;
  }
  read_memory();
}

void TrackedProcess::read_memory() {
  memory_ = {};
  if (living()) check_borrowing();
  if (living() && !borrows_memory()) {
    ProcText text;
    auto memory = parse_status(read_again(status_file_.get(), text));
    if (!memory && stat_.threads > 1) memory = memory_of_other_thread();
    memory_ = memory.value_or(ProcessMemory{});
    memory_.peak_rss = 0;
  }
  update_pages();
}

void TrackedProcess::update_pages() {
  for (std::size_t kind = 0; kind < kResidentKinds.size(); ++kind) {
    pages_[kind].set_resident(memory_.*kResidentKinds[kind]);
  }
}

void TrackedProcess::set_walked(const ProcessPss& pss, std::size_t processes) {
  // The walk does not separate file pages from shmem.
  const std::uint64_t other = above_zero(pss.resident, pss.resident_anon);
  const std::uint64_t shmem = std::min(memory_.shmem, other);
  const std::array<std::uint64_t, kResidentKinds.size()> resident = {pss.resident_anon,
                                                                     other - shmem, shmem};
  for (std::size_t kind = 0; kind < kResidentKinds.size(); ++kind) {
    const bool alone = processes == 1;
    pages_[kind].set_walked(resident[kind], alone ? resident[kind] : pss.kinds[kind],
                            alone ? 2 : processes);
  }
}

void TrackedProcess::read_resident() {
  if (!living() || borrows_memory()) return read_memory();
  if (!statm_file_) statm_file_ = Fd(open_proc(pid_, "statm"));
  ProcText text;
  std::uint64_t pages[3] = {};  // address space, resident set, file and shmem in the resident set
  std::string_view rest = read_again(statm_file_.get(), text);
  for (std::uint64_t& count : pages) {
    count = leading_number(rest).value_or(0);
    rest.remove_prefix(std::min(rest.find(' ', 1), rest.size()));
  }
  if (pages[1] == 0) return read_memory();  // the process or its first thread has ended
  const std::uint64_t shared = std::min(pages[2], pages[1]) * sys::page_size();
  memory_.anon = pages[1] * sys::page_size() - shared;
  memory_.shmem = std::min(memory_.shmem, shared);
  memory_.file = shared - memory_.shmem;
  update_pages();
}

// Between vfork and exec a child uses its parent's memory, which must not count twice. A child that
// has its own memory keeps it, so it is not checked again. If kcmp is not available, the memory
// counts.
void TrackedProcess::check_borrowing() {
  if (lender_ == 0) return;
  if (::syscall(SYS_kcmp, pid_, lender_, KCMP_VM, 0, 0) != 0) lender_ = 0;
}

// The memory belongs to all threads, but once the first has ended, the kernel reports it only in
// the status of the others.
std::optional<ProcessMemory> TrackedProcess::memory_of_other_thread() {
  ProcText text;
  for (const pid_t thread : numbered_entries(proc_path(pid_, "task"))) {
    Fd status(open_proc(pid_, "task/" + std::to_string(thread) + "/status"));
    if (!status) continue;
    const auto memory = parse_status(read_again(status.get(), text));
    if (!memory) continue;
    status_file_ = std::move(status);
    return memory;
  }
  return std::nullopt;
}

Tally TrackedProcess::tally() const {
  return {stat_.major_faults + stat_.child_major_faults,
          stat_.minor_faults + stat_.child_minor_faults, stat_.ticks + stat_.child_ticks,
          disk_read_.value_or(0)};
}

bool TrackedProcess::inherited(const Tally& child) {
  if (gone_ || inheritance_ < child.minor_faults) return false;
  inheritance_ -= child.minor_faults;
  return true;
}

}  // namespace evenkeel
