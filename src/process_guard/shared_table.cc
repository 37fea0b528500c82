#include "process_guard/shared_table.h"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <utility>

#include "base/text_file.h"
#include "evenkeel/error.h"
#include "meter/counters.h"

namespace evenkeel {
namespace {

using std::chrono::nanoseconds;
using std::chrono::steady_clock;

// How long to wait for an answer before checking that the process is still alive.
constexpr nanoseconds kAliveCheck = std::chrono::milliseconds(50);

// The memory is shared with other processes: no FUTEX_PRIVATE_FLAG.
void futex_wait(shared_table::Word& word, std::uint32_t seen, nanoseconds timeout) {
  const auto whole = std::chrono::duration_cast<std::chrono::seconds>(timeout);
  const timespec wait{whole.count(), (timeout - whole).count()};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, seen, &wait, nullptr, 0);
}
void futex_wake(shared_table::Word& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

nanoseconds left_until(steady_clock::time_point end) { return end - steady_clock::now(); }

steady_clock::time_point after(nanoseconds timeout) {
  const auto now = steady_clock::now();
  return timeout > steady_clock::time_point::max() - now ? steady_clock::time_point::max()
                                                         : now + timeout;
}

std::uint32_t within(std::uint32_t count, std::uint32_t most) { return std::min(count, most); }

// Raises the soft limit on the size of files (ulimit -f) for a scope. The table is sparse but
// large, so exceeding the limit would kill the tool with SIGXFSZ.
class FileSizeLimit {
 public:
  FileSizeLimit() {
    if (::getrlimit(RLIMIT_FSIZE, &before_) != 0) return;
    const rlimit most{before_.rlim_max, before_.rlim_max};
    raised_ = ::setrlimit(RLIMIT_FSIZE, &most) == 0;
  }
  ~FileSizeLimit() {
    if (raised_) ::setrlimit(RLIMIT_FSIZE, &before_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  bool allows(std::uint64_t bytes) const { return bytes <= before_.rlim_max; }

 private:
  rlimit before_{RLIM_INFINITY, RLIM_INFINITY};
  bool raised_ = false;
};

// The number of filters of this thread; 0 if the kernel does not report it (before Linux 5.9).
std::uint32_t seccomp_filters() {
  const auto text = read_text_file("/proc/thread-self/status");
  if (!text) return 0;
  return static_cast<std::uint32_t>(number_after(*text, "Seccomp_filters:").value_or(0));
}

void* map_table(int fd, std::uint64_t offset, std::uint64_t length) {
  return ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                static_cast<off_t>(offset));
}

}  // namespace

SharedTableOwner::SharedTableOwner(const Options& options)
    : options_(options),
      fd_(::memfd_create(shared_table::kName, MFD_CLOEXEC | MFD_ALLOW_SEALING)),
      arrays_(shared_table::kProcesses) {
  const auto fail = [](int code) {
    throw Error::system("create the memory that the guard shares with programs", code);
  };
  const FileSizeLimit limit;
  if (!limit.allows(shared_table::kTableBytes)) fail(EFBIG);
  if (!fd_ || ::ftruncate(fd_.get(), shared_table::kTableBytes) != 0) fail(errno);
  // A program that truncated it would kill the others, and the tool, with SIGBUS.
  if (::fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) fail(errno);
  void* at = map_table(fd_.get(), 0, sizeof(shared_table::SharedTable));
  if (at == MAP_FAILED) fail(errno);
  table_ = static_cast<shared_table::SharedTable*>(at);  // all zero, which is empty
  table_->version = shared_table::kVersion;
  table_->size = shared_table::kTableBytes;
  table_->least_bytes = options.least_bytes;
  table_->seccomp_filters = seccomp_filters();
  table_->first_advice = static_cast<std::uint32_t>(options.first_advice);
  table_->magic = shared_table::kMagic;
}

SharedTableOwner::~SharedTableOwner() {
  for (auto& array : arrays_) {
    if (array.load() != nullptr) ::munmap(array.load(), sizeof(shared_table::MappingArray));
  }
  ::munmap(table_, sizeof(shared_table::SharedTable));
}

std::string SharedTableOwner::variable() const {
  return std::string(shared_table::kVariable) + "=/proc/" + std::to_string(::getpid()) + "/fd/" +
         std::to_string(fd_.get());
}

bool SharedTableOwner::wait(std::uint32_t& seen, nanoseconds timeout) {
  const auto end = after(timeout);
  table_->waiters.fetch_add(1);
  std::uint32_t now = table_->changes.load();
  for (nanoseconds left = timeout; now == seen && left.count() > 0; left = left_until(end)) {
    futex_wait(table_->changes, seen, left);
    now = table_->changes.load();
  }
  table_->waiters.fetch_sub(1);
  return std::exchange(seen, now) != now;
}

void SharedTableOwner::interrupt() {
  table_->changes.fetch_add(1);
  futex_wake(table_->changes);
}

bool SharedTableOwner::is_alive(const shared_table::Process& process) {
  const auto pid = static_cast<pid_t>(process.pid.load());
  const auto thread = static_cast<pid_t>(process.thread.load());
  if (pid <= 0 || thread < 0) return false;
  // Check the thread, because exec ends it as well. Signal 0 is not delivered.
  if (thread != 0) return ::syscall(SYS_tgkill, pid, thread, 0) == 0 || errno != ESRCH;
  return ::kill(pid, 0) == 0 || errno != ESRCH;  // its thread has not started yet
}

// Whether the process has had no thread for too long.
bool SharedTableOwner::is_overdue(std::uint32_t process) {
  const shared_table::Process& entry = table_->processes[process];
  if (entry.thread.load() != 0) {
    starting_.erase(process);
    return false;
  }
  const auto now = steady_clock::now();
  const std::uint32_t registration = entry.registrations.load();
  Starting& starting = starting_.try_emplace(process, Starting{registration, now}).first->second;
  if (starting.registration != registration) starting = {registration, now};
  return now - starting.since >= options_.thread_start;
}

shared_table::Mapping* SharedTableOwner::array(std::uint32_t process) const {
  std::atomic<shared_table::Mapping*>& array = arrays_[process];
  if (shared_table::Mapping* known = array.load(std::memory_order_acquire)) return known;
  void* at = map_table(fd_.get(), shared_table::mappings_offset(process),
                       sizeof(shared_table::MappingArray));
  if (at == MAP_FAILED) return nullptr;
  shared_table::Mapping* none = nullptr;
  auto* mapped = static_cast<shared_table::Mapping*>(at);
  if (array.compare_exchange_strong(none, mapped)) return mapped;
  ::munmap(at, sizeof(shared_table::MappingArray));  // another thread was faster
  return none;
}

void SharedTableOwner::read_mapping(std::uint32_t process, std::uint32_t index,
                                    std::vector<TableEntry>& out) const {
  const shared_table::Process& owner = table_->processes[process];
  const shared_table::Mapping& from = array(process)[index];
  if (from.state.load(std::memory_order_acquire) != shared_table::kFilled) return;
  TableEntry mapping;
  mapping.process = process;
  mapping.mapping = index;
  mapping.generation = from.generation.load(std::memory_order_acquire);
  mapping.file = from.file.load(std::memory_order_acquire);
  mapping.file_generation = from.file_generation.load(std::memory_order_acquire);
  mapping.descriptor = from.descriptor.load(std::memory_order_acquire);
  mapping.pid = static_cast<pid_t>(owner.pid.load());
  mapping.begin = from.begin.load(std::memory_order_acquire);
  mapping.end = from.end.load(std::memory_order_acquire);
  mapping.offset = from.offset.load(std::memory_order_acquire);
  const std::uint32_t flags = from.flags.load(std::memory_order_acquire);
  mapping.shared = (flags & shared_table::kShared) != 0;
  mapping.writable = (flags & shared_table::kWritable) != 0;
  mapping.advised = (flags & shared_table::kAdvised) != 0;
  const bool settled = from.generation.load(std::memory_order_acquire) == mapping.generation &&
                       from.state.load(std::memory_order_acquire) == shared_table::kFilled;
  if (!settled || mapping.begin >= mapping.end ||
      mapping.offset > UINT64_MAX - (mapping.end - mapping.begin) ||
      !has_file(mapping.file, mapping.file_generation)) {
    return;
  }
  out.push_back(mapping);
}

std::vector<TableEntry> SharedTableOwner::read_mappings(std::uint32_t process) const {
  std::vector<TableEntry> found;
  if (array(process) == nullptr) return found;
  const std::uint32_t used =
      within(table_->processes[process].mappings_used.load(), shared_table::kMappings);
  for (std::uint32_t index = 0; index < used; ++index) read_mapping(process, index, found);
  return found;
}

// The mappings of a process are read again only if they have changed.
std::vector<TableEntry> SharedTableOwner::mappings() {
  std::vector<TableEntry> found;
  MutexLock lock(mutex_);
  const std::uint32_t processes = within(table_->processes_used.load(), shared_table::kProcesses);
  for (std::uint32_t p = 0; p < processes; ++p) {
    shared_table::Process& process = table_->processes[p];
    if (process.state.load(std::memory_order_acquire) != shared_table::kFilled) {
      cached_.erase(p);
      starting_.erase(p);
      continue;
    }
    const std::uint32_t registration = process.registrations.load();
    const std::uint32_t pid = process.pid.load();
    if (!is_alive(process)) {
      cached_.erase(p);
      starting_.erase(p);
      forget_process(p, static_cast<pid_t>(pid), registration);
      continue;
    }
    if (is_overdue(p)) continue;
    Cached& cached = cached_[p];
    const std::uint32_t changes = process.changes.load(std::memory_order_acquire);
    if (cached.pid != pid || cached.changes != changes || changes == 0) {
      cached = {pid, changes, read_mappings(p)};
    }
    found.insert(found.end(), cached.mappings.begin(), cached.mappings.end());
  }
  return found;
}

bool SharedTableOwner::has_file(std::uint32_t index, std::uint32_t generation) const {
  if (index >= shared_table::kFiles) return false;
  const shared_table::File& file = table_->files[index];
  const std::uint32_t state = file.state.load(std::memory_order_acquire);
  return (state == shared_table::kFilled || state == shared_table::kRetiring) &&
         file.generation.load(std::memory_order_acquire) == generation;
}

TableFile SharedTableOwner::file(std::uint32_t index) const {
  if (index >= shared_table::kFiles ||
      !has_file(index, table_->files[index].generation.load(std::memory_order_acquire))) {
    return {};
  }
  const shared_table::File& from = table_->files[index];
  TableFile file{from.device, from.inode, from.born, {}};
  const std::uint64_t at = from.long_path, length = from.path_length;
  if (length <= shared_table::kShortPath) {
    file.path.assign(from.path, length);
  } else if (at <= shared_table::kLongPathBytes && length <= shared_table::kLongPathBytes - at) {
    file.path.assign(table_->long_paths + at, length);
  }
  return file;
}

void SharedTableOwner::set_random(std::uint32_t file, std::uint32_t generation, bool random) {
  if (has_file(file, generation)) table_->files[file].random.store(random ? 1 : 0);
}

// While the entry is marked as retiring, no process can take it.
void SharedTableOwner::forget_process(std::uint32_t process, pid_t pid,
                                      std::uint32_t registration) {
  if (process >= shared_table::kProcesses) return;
  shared_table::Process& entry = table_->processes[process];
  std::uint32_t state = shared_table::kFilled;
  if (!entry.state.compare_exchange_strong(state, shared_table::kRetiring)) return;
  const bool ended = entry.pid.load() == static_cast<std::uint32_t>(pid) &&
                     entry.registrations.load() == registration;
  state = shared_table::kRetiring;  // unless the program has given its entry back meanwhile
  entry.state.compare_exchange_strong(state, ended ? shared_table::kEmpty : shared_table::kFilled);
}

std::vector<bool> SharedTableOwner::referenced_files() const {
  std::vector<bool> referenced(shared_table::kFiles);
  const std::uint32_t processes = within(table_->processes_used.load(), shared_table::kProcesses);
  for (std::uint32_t p = 0; p < processes; ++p) {
    if (table_->processes[p].state.load() == shared_table::kEmpty) continue;
    for (const TableEntry& mapping : read_mappings(p)) referenced[mapping.file] = true;
  }
  return referenced;
}

// A program registers a file, publishes a mapping that refers to it, and then checks that the entry
// is still there. So once an entry is marked as retiring, either a mapping of it is seen here, or
// its program sees the mark and registers the file again.
void SharedTableOwner::retire_files() {
  MutexLock lock(mutex_);
  const std::uint32_t used = table_->files_used.load();
  if (used <= options_.keep_files || used < retire_at_) return;
  std::vector<bool> referenced = referenced_files();
  std::vector<std::uint32_t> retiring;
  for (std::uint32_t index = 0; index < shared_table::kFiles; ++index) {
    std::uint32_t filled = shared_table::kFilled;
    if (!referenced[index] &&
        table_->files[index].state.compare_exchange_strong(filled, shared_table::kRetiring)) {
      retiring.push_back(index);
    }
  }
  std::atomic_thread_fence(std::memory_order_seq_cst);
  referenced = referenced_files();
  for (const std::uint32_t index : retiring) {
    shared_table::File& file = table_->files[index];
    if (referenced[index]) {
      file.state.store(shared_table::kFilled);
      continue;
    }
    file.generation.fetch_add(1);
    file.state.store(shared_table::kFree);
    table_->files_used.fetch_sub(1);
  }
  retire_at_ = table_->files_used.load() + options_.keep_files / 4;
}

LostCounts SharedTableOwner::lost() const {
  return {table_->lost_files.load(), table_->lost_processes.load(), table_->lost_mappings.load(),
          table_->lost_paths.load(), table_->sandboxed_processes.load()};
}

std::uint32_t SharedTableOwner::unmount_requests() const {
  return table_->unmount_requests.load(std::memory_order_acquire);
}

void SharedTableOwner::answer_unmount_requests(std::uint32_t request) {
  if (table_->unmount_answers.exchange(request) != request) futex_wake(table_->unmount_answers);
}

bool SharedTableOwner::holds(const TableEntry& mapping) const {
  if (mapping.process >= shared_table::kProcesses || mapping.mapping >= shared_table::kMappings)
    return false;
  const shared_table::Process& process = table_->processes[mapping.process];
  const shared_table::Mapping* entries = array(mapping.process);
  return entries != nullptr && process.state.load() == shared_table::kFilled &&
         process.pid.load() == static_cast<std::uint32_t>(mapping.pid) &&
         entries[mapping.mapping].state.load() == shared_table::kFilled &&
         entries[mapping.mapping].generation.load() == mapping.generation;
}

SharedTableOwner::Answer SharedTableOwner::release(const TableEntry& mapping, std::uint64_t begin,
                                                   std::uint64_t end, nanoseconds timeout) {
  const int error = start_command(mapping, begin, end, shared_table::kRelease);
  return error != 0 ? Answer{error, false} : finish_command(mapping, timeout);
}

SharedTableOwner::Answer SharedTableOwner::advise(const TableEntry& mapping, std::uint64_t begin,
                                                  std::uint64_t end, int advice,
                                                  nanoseconds timeout) {
  const int error = start_command(mapping, begin, end, shared_table::kAdvise, advice);
  return error != 0 ? Answer{error, false} : finish_command(mapping, timeout);
}

int SharedTableOwner::start_command(const TableEntry& mapping, std::uint64_t begin,
                                    std::uint64_t end, shared_table::CommandKind kind, int advice) {
  if (!holds(mapping)) return ESTALE;
  MutexLock lock(mutex_);
  const shared_table::Command& command = table_->processes[mapping.process].command;
  if (command.done.load() != command.posted.load()) return EBUSY;
  const auto [place, fresh] = pending_.try_emplace(mapping.process);
  Pending& pending = place->second;
  if (pending.posted) return EBUSY;
  if (fresh) {
    pending.kind = kind;
    pending.advice = advice;
  }
  const bool full = pending.ranges.size() == shared_table::kCommandRanges;
  if (full || pending.kind != kind || pending.advice != advice) return ENOBUFS;
  pending.ranges.push_back({mapping.mapping, mapping.generation, begin, end, 0, 0});
  return 0;
}

void SharedTableOwner::post(std::uint32_t process, Pending& pending) {
  if (pending.posted) return;
  shared_table::Command& command = table_->processes[process].command;
  command.kind = pending.kind;
  command.advice = static_cast<std::uint32_t>(pending.advice);
  command.count = static_cast<std::uint32_t>(pending.ranges.size());
  std::ranges::copy(pending.ranges, command.ranges);
  pending.number = command.posted.load() + 1;
  pending.posted = true;
  command.posted.store(pending.number, std::memory_order_release);
  futex_wake(command.posted);
}

SharedTableOwner::Answer SharedTableOwner::finish_command(const TableEntry& mapping,
                                                          nanoseconds timeout) {
  std::uint32_t number = 0;
  {
    MutexLock lock(mutex_);
    for (auto& [process, pending] : pending_) post(process, pending);
    const auto place = pending_.find(mapping.process);
    if (place == pending_.end()) return {};  // finished with another mapping of the process
    number = place->second.number;
  }
  return take_answer(mapping.process, number, timeout);
}

SharedTableOwner::Answer SharedTableOwner::finish_full_command(const TableEntry& mapping,
                                                               nanoseconds timeout) {
  std::uint32_t number = 0;
  {
    MutexLock lock(mutex_);
    const auto place = pending_.find(mapping.process);
    if (place == pending_.end()) return {};
    post(mapping.process, place->second);
    number = place->second.number;
  }
  return take_answer(mapping.process, number, timeout);
}

SharedTableOwner::Answer SharedTableOwner::take_answer(std::uint32_t process, std::uint32_t number,
                                                       nanoseconds timeout) {
  Answer answer = wait_for_answer(process, number, timeout);
  MutexLock lock(mutex_);
  const auto place = pending_.find(process);
  if (place == pending_.end()) return answer;
  const shared_table::Command& command = table_->processes[process].command;
  for (std::size_t i = 0; answer.error == 0 && i < place->second.ranges.size(); ++i) {
    answer.error = command.ranges[i].result;
    answer.dropped |= command.ranges[i].dropped != 0;
  }
  pending_.erase(place);
  return answer;
}

SharedTableOwner::Answer SharedTableOwner::wait_for_answer(std::uint32_t process,
                                                           std::uint32_t number,
                                                           nanoseconds timeout) const {
  shared_table::Process& entry = table_->processes[process];
  shared_table::Command& command = entry.command;
  const auto until = after(timeout);
  for (nanoseconds rest = timeout;; rest = left_until(until)) {
    const std::uint32_t done = command.done.load(std::memory_order_acquire);
    if (done == number) return {};
    // Not filled: the program has taken its entry back (Agent::leave), or the tool is checking
    // whether it has ended.
    const bool left = entry.state.load() != shared_table::kFilled;
    if (left || !is_alive(entry)) return {ESTALE, false};
    if (rest.count() <= 0) return {ETIMEDOUT, false};
    futex_wait(command.done, done, std::min(rest, kAliveCheck));
  }
}

}  // namespace evenkeel
