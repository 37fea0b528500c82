#include "preload/table_link.h"

#include <linux/magic.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "preload/raw_calls.h"
#include "preload/say.h"

// Weak, so that nothing can be missing when the library is loaded.
extern "C" {
[[gnu::weak]] char* getenv(const char*) noexcept;
[[gnu::weak]] unsigned long getauxval(unsigned long) noexcept;
}

namespace evenkeel::preload {
namespace {

constinit char board_path[64];  // empty: none

bool is_secure() { return &::getauxval != nullptr && ::getauxval(AT_SECURE) != 0; }

bool begins(const char* text, std::uint64_t length, const char* with) {
  for (std::uint64_t i = 0; with[i] != 0; ++i) {
    if (i >= length || text[i] != with[i]) return false;
  }
  return true;
}

// The board is opened and closed. A name that leads elsewhere might be a file that the program has
// locks on, which closing would drop: so the name is looked at first.
bool leads_to_a_board(long& error) {
  char target[64];
  const long length = raw_readlink(board_path, target, sizeof target);
  error = length < 0 ? -length : 0;
  constexpr char kPrefix[] = "/memfd:";
  return length > 0 && begins(target, length, kPrefix) &&
         begins(target + sizeof kPrefix - 1, length - (sizeof kPrefix - 1), shared_table::kName);
}

shared_table::SharedTable* map_board(long fd, const char*& problem, long& error) {
  struct {
    std::uint32_t magic, version;
    std::uint64_t size;
  } head{};
  const long got = raw(SYS_pread64, fd, &head, sizeof head, 0L);
  if (got != sizeof head || head.magic != shared_table::kMagic) {
    problem = "what the environment names is no board";
    return nullptr;
  }
  if (head.version != shared_table::kVersion || head.size != sizeof(shared_table::SharedTable)) {
    problem = "the tool is of another version";
    return nullptr;
  }
  const long at = raw(SYS_mmap, nullptr, sizeof(shared_table::SharedTable), PROT_READ | PROT_WRITE,
                      MAP_SHARED, fd, 0L);
  if (at < 0 && at > -4096) {
    problem = "the board cannot be mapped";
    error = -at;
    return nullptr;
  }
  return reinterpret_cast<shared_table::SharedTable*>(at);  // NOLINT(performance-no-int-to-ptr)
}

// The leading number of "123" or the last of "123/task/124".
std::uint32_t number_of_link(const char* path) {
  char target[64];
  const long length = raw_readlink(path, target, sizeof target);
  std::uint32_t number = 0;
  for (long i = 0; i < length; ++i) {
    if (target[i] == '/') number = 0;
    if (target[i] >= '0' && target[i] <= '9') number = number * 10 + (target[i] - '0');
  }
  return number;
}

void raise_to(shared_table::Word& word, std::uint32_t least) {
  std::uint32_t seen = word.load();
  while (seen < least && !word.compare_exchange_weak(seen, least)) {
  }
}

shared_table::Process* take_over(shared_table::Process& process, std::uint32_t from,
                                 std::uint32_t number) {
  if (!process.state.compare_exchange_strong(from, shared_table::kFilling)) return nullptr;
  process.pid.store(number);
  process.thread.store(0);
  const std::uint32_t used = process.mappings_used.load();
  for (std::uint32_t i = 0; i < used && i < shared_table::kMappings; ++i) {
    process.mappings[i].state.store(shared_table::kEmpty);
  }
  process.mappings_used.store(0);
  // An order to who was here before is answered.
  const std::uint32_t posted = process.order.posted.load();
  if (process.order.done.load() != posted) {
    process.order.result = ESTALE;
    process.order.dropped = 0;
    process.order.done.store(posted);
    futex_wake(process.order.done, 1, Among::kProcesses);
  }
  process.changes.fetch_add(1);
  process.state.store(shared_table::kFilled);
  return &process;
}

// False when there is no room.
bool put_path(shared_table::SharedTable& board, const char* path, std::uint64_t length,
              std::uint64_t& at) {
  std::uint64_t used = board.paths_used.load();
  do {
    if (used > shared_table::kPathBytes || length > shared_table::kPathBytes - used) return false;
  } while (!board.paths_used.compare_exchange_weak(used, used + length));
  __builtin_memcpy(board.paths + used, path, length);
  at = used;
  return true;
}

std::uint32_t hash(const FileFacts& facts) {
  std::uint64_t mixed = facts.inode;
  for (const std::uint64_t part : {facts.device, facts.born}) {
    mixed = (mixed ^ part) * 0x9e3779b97f4a7c15;
    mixed ^= mixed >> 29;
  }
  return static_cast<std::uint32_t>((mixed * 0x9e3779b97f4a7c15) >> 32) % shared_table::kFiles;
}

// Waits a little for who is filling the slot. Whoever died over it leaves it so.
std::uint32_t settled_state(shared_table::File& file) {
  std::uint32_t state = file.state.load(std::memory_order_acquire);
  for (int i = 0; state == shared_table::kFilling && i < 100; ++i) {
    raw(SYS_sched_yield);
    state = file.state.load(std::memory_order_acquire);
  }
  return state;
}

// major and minor as stat joins them.
std::uint64_t joined(std::uint64_t high, std::uint64_t low) {
  return (high & 0xfffff000) << 32 | (high & 0xfff) << 8 | (low & 0xffffff00) << 12 | (low & 0xff);
}

}  // namespace

void remember_environment() {
  if (board_path[0] != 0 || is_secure() || &::getenv == nullptr) return;
  const char* value = ::getenv(shared_table::kVariable);
  if (!value) return;
  for (std::size_t i = 0; value[i] != 0; ++i) {
    if (i + 1 == sizeof board_path) {
      board_path[0] = '?';  // no name that the tool gives
      board_path[1] = 0;
      return;
    }
    board_path[i] = value[i];
  }
}

shared_table::SharedTable* open_board() {
  if (board_path[0] == 0) return nullptr;
  long error = 0;
  if (!leads_to_a_board(error)) {
    say_unguarded(
        error != 0 ? "the board cannot be reached" : "what the environment names is no board",
        error);
    return nullptr;
  }
  const long fd = raw_open(board_path, O_RDWR | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) {
    say_unguarded("the board cannot be opened", -fd);
    return nullptr;
  }
  const char* problem = nullptr;
  shared_table::SharedTable* board = map_board(fd, problem, error);
  raw_close(fd);
  if (!board) say_unguarded(problem, error);
  return board;
}

std::uint32_t own_process_number() { return number_of_link("/proc/self"); }
std::uint32_t own_thread_number() { return number_of_link("/proc/thread-self"); }

shared_table::Process* claim_process(shared_table::SharedTable& board) {
  const std::uint32_t number = own_process_number();
  if (number == 0) return nullptr;
  std::uint32_t used = board.processes_used.load();
  if (used > shared_table::kProcesses) used = shared_table::kProcesses;
  for (std::uint32_t i = 0; i < used; ++i) {
    shared_table::Process& process = board.processes[i];
    if (process.state.load() != shared_table::kFilled || process.pid.load() != number) continue;
    if (shared_table::Process* mine = take_over(process, shared_table::kFilled, number))
      return mine;
  }
  for (std::uint32_t i = 0; i < shared_table::kProcesses; ++i) {
    raise_to(board.processes_used, i + 1);
    if (board.processes[i].state.load() != shared_table::kEmpty) continue;
    shared_table::Process* mine = take_over(board.processes[i], shared_table::kEmpty, number);
    if (mine) return mine;
  }
  board.lost.fetch_add(1);
  return nullptr;
}

std::uint32_t file_slot(shared_table::SharedTable& board, const FileFacts& facts, const char* path,
                        std::uint64_t path_length) {
  const std::uint32_t first = hash(facts);
  for (std::uint32_t i = 0; i < shared_table::kFiles; ++i) {
    const std::uint32_t slot = (first + i) % shared_table::kFiles;
    shared_table::File& file = board.files[slot];
    std::uint32_t state = shared_table::kEmpty;
    if (file.state.compare_exchange_strong(state, shared_table::kFilling)) {
      if (!put_path(board, path, path_length, file.path)) {
        file.state.store(shared_table::kEmpty);
        break;
      }
      file.path_length = path_length;
      file.device = facts.device;
      file.inode = facts.inode;
      file.born = facts.born;
      file.random.store(0);
      file.state.store(shared_table::kFilled, std::memory_order_release);
      return slot;
    }
    if (settled_state(file) == shared_table::kFilled && file.inode == facts.inode &&
        file.device == facts.device && file.born == facts.born) {
      return slot;
    }
  }
  board.lost.fetch_add(1);
  return shared_table::kFiles;
}

void ring(shared_table::SharedTable& board) {
  board.bell.fetch_add(1);
  if (board.waiting.load() != 0) futex_wake(board.bell, 1 << 30, Among::kProcesses);
}

bool file_facts(int fd, FileFacts& out) {
  struct ::statx status;
  if (raw(SYS_statx, fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_BASIC_STATS | STATX_BTIME,
          &status) == 0) {
    out.device = joined(status.stx_dev_major, status.stx_dev_minor);
    out.inode = status.stx_ino;
    out.regular = S_ISREG(status.stx_mode);
    out.born = (status.stx_mask & STATX_BTIME) == 0
                   ? 0
                   : static_cast<std::uint64_t>(status.stx_btime.tv_sec) * 1'000'000'000 +
                         status.stx_btime.tv_nsec;
    return true;
  }
  struct ::stat old;
  if (raw(SYS_fstat, fd, &old) != 0) return false;
  out = {old.st_dev, old.st_ino, 0, S_ISREG(old.st_mode)};
  return true;
}

bool has_huge_pages(int fd) {
  struct ::statfs status;
  return raw(SYS_fstatfs, fd, &status) == 0 && status.f_type == HUGETLBFS_MAGIC;
}

}  // namespace evenkeel::preload
