#include "process_guard/shared_table.h"

#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <utility>

#include "evenkeel/error.h"

namespace evenkeel {
namespace {

using std::chrono::nanoseconds;
using std::chrono::steady_clock;

// How long an order is awaited before looking whether there is still somebody to answer.
constexpr nanoseconds kLook = std::chrono::milliseconds(50);

// The memory is other processes', too: no FUTEX_PRIVATE_FLAG.
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

}  // namespace

SharedTableOwner::SharedTableOwner(const Options& options)
    : fd_(::memfd_create(shared_table::kName, MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
  const auto fail = [] { throw Error::system("make the guard's board", errno); };
  if (!fd_ || ::ftruncate(fd_.get(), sizeof(shared_table::SharedTable)) != 0) fail();
  // A program that shortened it would end the others, and the tool, by SIGBUS.
  if (::fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) fail();
  void* at = ::mmap(nullptr, sizeof(shared_table::SharedTable), PROT_READ | PROT_WRITE, MAP_SHARED,
                    fd_.get(), 0);
  if (at == MAP_FAILED) fail();
  board_ = static_cast<shared_table::SharedTable*>(at);  // all zero, which is empty
  board_->version = shared_table::kVersion;
  board_->size = sizeof(shared_table::SharedTable);
  board_->least_bytes = options.least_bytes;
  board_->first_advice = static_cast<std::uint32_t>(options.first_advice);
  board_->magic = shared_table::kMagic;
}

SharedTableOwner::~SharedTableOwner() { ::munmap(board_, sizeof(shared_table::SharedTable)); }

std::string SharedTableOwner::variable() const {
  return std::string(shared_table::kVariable) + "=/proc/" + std::to_string(::getpid()) + "/fd/" +
         std::to_string(fd_.get());
}

bool SharedTableOwner::wait(std::uint32_t& seen, nanoseconds timeout) {
  const auto end = after(timeout);
  board_->waiting.fetch_add(1);
  std::uint32_t now = board_->bell.load();
  for (nanoseconds left = timeout; now == seen && left.count() > 0; left = left_until(end)) {
    futex_wait(board_->bell, seen, left);
    now = board_->bell.load();
  }
  board_->waiting.fetch_sub(1);
  return std::exchange(seen, now) != now;
}

void SharedTableOwner::interrupt() {
  board_->bell.fetch_add(1);
  futex_wake(board_->bell);
}

bool SharedTableOwner::is_alive(const shared_table::Process& process) {
  const auto pid = static_cast<pid_t>(process.pid.load());
  const auto thread = static_cast<pid_t>(process.thread.load());
  if (pid <= 0 || thread < 0) return false;
  // By its thread, which exec ends, too. Signal 0 is none.
  if (thread != 0) return ::syscall(SYS_tgkill, pid, thread, 0) == 0 || errno != ESRCH;
  return ::kill(pid, 0) == 0 || errno != ESRCH;  // it is just about to start one
}

void SharedTableOwner::read_mapping(std::uint32_t process, std::uint32_t slot,
                                    std::vector<TableEntry>& out) const {
  const shared_table::Process& owner = board_->processes[process];
  const shared_table::Mapping& from = owner.mappings[slot];
  if (from.state.load(std::memory_order_acquire) != shared_table::kFilled) return;
  TableEntry mapping;
  mapping.process = process;
  mapping.mapping = slot;
  mapping.generation = from.generation.load(std::memory_order_acquire);
  mapping.file = from.file.load(std::memory_order_acquire);
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
      mapping.offset > UINT64_MAX - (mapping.end - mapping.begin) || !has_file(mapping.file)) {
    return;
  }
  out.push_back(mapping);
}

std::vector<TableEntry> SharedTableOwner::mappings() {
  std::vector<TableEntry> found;
  const std::uint32_t processes = within(board_->processes_used.load(), shared_table::kProcesses);
  for (std::uint32_t p = 0; p < processes; ++p) {
    shared_table::Process& process = board_->processes[p];
    if (process.state.load(std::memory_order_acquire) != shared_table::kFilled) continue;
    const auto pid = static_cast<pid_t>(process.pid.load());
    if (!is_alive(process)) {
      forget_process(p, pid);
      continue;
    }
    const std::uint32_t slots = within(process.mappings_used.load(), shared_table::kMappings);
    for (std::uint32_t slot = 0; slot < slots; ++slot) read_mapping(p, slot, found);
  }
  return found;
}

bool SharedTableOwner::has_file(std::uint32_t slot) const {
  return slot < shared_table::kFiles &&
         board_->files[slot].state.load(std::memory_order_acquire) == shared_table::kFilled;
}

TableFile SharedTableOwner::file(std::uint32_t slot) const {
  if (!has_file(slot)) return {};
  const shared_table::File& from = board_->files[slot];
  TableFile file{from.device, from.inode, from.born, {}};
  const std::uint64_t at = from.path, length = from.path_length;
  if (at <= shared_table::kPathBytes && length <= shared_table::kPathBytes - at) {
    file.path.assign(board_->paths + at, length);
  }
  return file;
}

void SharedTableOwner::set_random(std::uint32_t file, bool random) {
  if (has_file(file)) board_->files[file].random.store(random ? 1 : 0);
}

void SharedTableOwner::forget_process(std::uint32_t process, pid_t pid) {
  if (process >= shared_table::kProcesses) return;
  shared_table::Process& slot = board_->processes[process];
  if (slot.pid.load() != static_cast<std::uint32_t>(pid)) return;
  std::uint32_t filled = shared_table::kFilled;
  slot.state.compare_exchange_strong(filled, shared_table::kEmpty);
}

std::uint32_t SharedTableOwner::lost() const { return board_->lost.load(); }

SharedTableOwner::Answer SharedTableOwner::let_go(const TableEntry& mapping, std::uint64_t begin,
                                                  std::uint64_t end, nanoseconds timeout) {
  return order(mapping, begin, end, shared_table::kLetGo, 0, timeout);
}

SharedTableOwner::Answer SharedTableOwner::advise(const TableEntry& mapping, std::uint64_t begin,
                                                  std::uint64_t end, int advice,
                                                  nanoseconds timeout) {
  return order(mapping, begin, end, shared_table::kAdvise, advice, timeout);
}

bool SharedTableOwner::holds(const TableEntry& mapping) const {
  if (mapping.process >= shared_table::kProcesses || mapping.mapping >= shared_table::kMappings)
    return false;
  const shared_table::Process& process = board_->processes[mapping.process];
  const shared_table::Mapping& slot = process.mappings[mapping.mapping];
  return process.state.load() == shared_table::kFilled &&
         process.pid.load() == static_cast<std::uint32_t>(mapping.pid) &&
         slot.state.load() == shared_table::kFilled && slot.generation.load() == mapping.generation;
}

SharedTableOwner::Answer SharedTableOwner::order(const TableEntry& mapping, std::uint64_t begin,
                                                 std::uint64_t end, shared_table::OrderKind kind,
                                                 int advice, nanoseconds timeout) {
  if (!holds(mapping)) return {ESTALE, false};
  const std::unique_lock one(ordering_[mapping.process], std::try_to_lock);
  if (!one) return {EBUSY, false};
  shared_table::Process& process = board_->processes[mapping.process];
  shared_table::Order& order = process.order;
  const std::uint32_t last = order.posted.load();
  if (order.done.load() != last) return {EBUSY, false};
  order.kind = kind;
  order.advice = static_cast<std::uint32_t>(advice);
  order.mapping = mapping.mapping;
  order.generation = mapping.generation;
  order.begin = begin;
  order.end = end;
  order.posted.store(last + 1, std::memory_order_release);
  futex_wake(order.posted);

  const auto until = after(timeout);
  for (nanoseconds left = timeout;; left = left_until(until)) {
    const std::uint32_t done = order.done.load(std::memory_order_acquire);
    if (done == last + 1) return {order.result, order.dropped != 0};
    if (!is_alive(process)) return {ESTALE, false};
    if (left.count() <= 0) return {ETIMEDOUT, false};
    futex_wait(order.done, done, std::min(left, kLook));
  }
}

}  // namespace evenkeel
