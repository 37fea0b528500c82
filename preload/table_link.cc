#include "preload/table_link.h"

#include <linux/magic.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <initializer_list>

#include "preload/raw_calls.h"
#include "preload/say.h"

// Weak, so that nothing can be missing when the library is loaded.
extern "C" {
[[gnu::weak]] char* getenv(const char*) noexcept;
[[gnu::weak]] unsigned long getauxval(unsigned long) noexcept;
}

namespace evenkeel::preload {
namespace {

constinit char table_path[64];  // empty: none

bool is_secure() { return &::getauxval != nullptr && ::getauxval(AT_SECURE) != 0; }

bool begins(const char* text, std::uint64_t length, const char* with) {
  for (std::uint64_t i = 0; with[i] != 0; ++i) {
    if (i >= length || text[i] != with[i]) return false;
  }
  return true;
}

// Reads the link before the table is opened: if the path led to a file that the program has locked,
// closing it again would release the lock.
bool leads_to_a_table(long& error) {
  char target[64];
  const long length = raw_readlink(table_path, target, sizeof target);
  error = length < 0 ? -length : 0;
  constexpr char kPrefix[] = "/memfd:";
  return length > 0 && begins(target, length, kPrefix) &&
         begins(target + sizeof kPrefix - 1, length - (sizeof kPrefix - 1), shared_table::kName);
}

// Returns a descriptor, or -1 and the problem.
long open_table(const char*& problem, long& error) {
  if (!leads_to_a_table(error)) {
    problem = error != 0 ? "the tool's shared memory cannot be reached"
                         : "EVENKEEL_GUARD does not name the tool's shared memory";
    return -1;
  }
  const long fd = raw_open(table_path, O_RDWR | O_NONBLOCK | O_NOCTTY);
  if (fd >= 0) return fd;
  problem = "the tool's shared memory cannot be opened";
  error = -fd;
  return -1;
}

void* map_shared(long fd, std::uint64_t offset, std::uint64_t length, long& error) {
  const long at = raw(SYS_mmap, nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                      static_cast<long>(offset));
  if (at < 0 && at > -4096) {
    error = -at;
    return nullptr;
  }
  return reinterpret_cast<void*>(at);  // NOLINT(performance-no-int-to-ptr)
}

shared_table::SharedTable* map_table(long fd, const char*& problem, long& error) {
  struct {
    std::uint32_t magic, version;
    std::uint64_t size;
  } head{};
  const long got = raw(SYS_pread64, fd, &head, sizeof head, 0L);
  if (got != sizeof head || head.magic != shared_table::kMagic) {
    problem = "EVENKEEL_GUARD does not name the tool's shared memory";
    return nullptr;
  }
  if (head.version != shared_table::kVersion || head.size != shared_table::kTableBytes) {
    problem = "the tool has another version";
    return nullptr;
  }
  void* at = map_shared(fd, 0, sizeof(shared_table::SharedTable), error);
  if (!at) problem = "the tool's shared memory cannot be mapped";
  return static_cast<shared_table::SharedTable*>(at);
}

shared_table::Mapping* map_mappings(std::uint32_t process) {
  const char* problem = nullptr;
  long error = 0;
  const long fd = open_table(problem, error);
  if (fd < 0) return nullptr;
  void* at = map_shared(fd, shared_table::mappings_offset(process),
                        sizeof(shared_table::MappingArray), error);
  raw_close(fd);
  return static_cast<shared_table::Mapping*>(at);
}

// The last number of the link's target, such as "123" or "123/task/124".
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

// Takes an entry in state `from`. If it returns true, only this process may fill the entry.
bool take_over(shared_table::Process& process, std::uint32_t from) {
  return process.state.compare_exchange_strong(from, shared_table::kFilling);
}

void fill_process(const Registration& own, std::uint32_t number) {
  shared_table::Process& process = *own.process;
  process.pid.store(number);
  process.thread.store(0);
  process.registrations.fetch_add(1);
  const std::uint32_t used = process.mappings_used.load();
  for (std::uint32_t i = 0; i < used && i < shared_table::kMappings; ++i) {
    own.mappings[i].state.store(shared_table::kEmpty);
  }
  process.mappings_used.store(0);
  // Answer a command to the process that had the entry before.
  shared_table::Command& command = process.command;
  const std::uint32_t posted = command.posted.load();
  if (command.done.load() != posted) {
    for (shared_table::CommandRange& range : command.ranges) {
      range.result = ESTALE;
      range.dropped = 0;
    }
    command.done.store(posted);
    futex_wake(command.done, 1, Among::kProcesses);
  }
  process.changes.fetch_add(1);
  process.state.store(shared_table::kFilled);
}

// Takes an entry that no other process has. Returns kProcesses if there is none.
std::uint32_t claim_entry(shared_table::SharedTable& table, std::uint32_t number) {
  std::uint32_t used = table.processes_used.load();
  if (used > shared_table::kProcesses) used = shared_table::kProcesses;
  for (std::uint32_t i = 0; i < used; ++i) {
    shared_table::Process& process = table.processes[i];
    if (process.state.load() == shared_table::kFilled && process.pid.load() == number &&
        take_over(process, shared_table::kFilled)) {
      return i;
    }
  }
  for (std::uint32_t i = 0; i < shared_table::kProcesses; ++i) {
    raise_to(table.processes_used, i + 1);
    if (table.processes[i].state.load() == shared_table::kEmpty &&
        take_over(table.processes[i], shared_table::kEmpty)) {
      return i;
    }
  }
  return shared_table::kProcesses;
}

// Finds room for a long path: the room that the entry has from an earlier file, or new room.
// Returns false if there is none.
bool find_room(shared_table::SharedTable& table, shared_table::File& file, std::uint64_t length) {
  constexpr std::uint64_t kAll = shared_table::kLongPathBytes;
  const std::uint64_t at = file.long_path, bytes = file.long_path_bytes;
  if (length <= bytes && at <= kAll && bytes <= kAll - at) return true;
  // Take more than needed, so that a path of similar length fits later.
  constexpr std::uint64_t kUnit = 256;
  const std::uint64_t wanted = (length + kUnit - 1) / kUnit * kUnit;
  std::uint64_t used = table.long_paths_used.load();
  do {
    if (used > kAll || wanted > kAll - used) return false;
  } while (!table.long_paths_used.compare_exchange_weak(used, used + wanted));
  file.long_path = static_cast<std::uint32_t>(used);
  file.long_path_bytes = static_cast<std::uint32_t>(wanted);
  return true;
}

// Returns false if there is no room.
bool put_path(shared_table::SharedTable& table, shared_table::File& file, const char* path,
              std::uint64_t length) {
  char* to = file.path;
  if (length > shared_table::kShortPath) {
    if (!find_room(table, file, length)) return false;
    to = table.long_paths + file.long_path;
  }
  __builtin_memcpy(to, path, length);
  file.path_length = static_cast<std::uint32_t>(length);
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

// Limits how long one call waits for all the entries that it reads: about 20 ms.
class Waits {
 public:
  // Returns false if the limit is reached.
  bool wait() {
    if (done_ == kMost) return false;
    const timespec pause{0, done_ < kMost / 2 ? 0 : 100'000};
    ++done_;
    raw(SYS_nanosleep, &pause, nullptr);
    return true;
  }

 private:
  static constexpr int kMost = 200;
  int done_ = 0;
};

// Waits a little while another process fills the entry or the tool retires it. A process or a tool
// that is killed meanwhile leaves the entry in that state for good.
std::uint32_t settled_state(const shared_table::File& file, Waits& waits) {
  for (;;) {
    const std::uint32_t state = file.state.load(std::memory_order_acquire);
    const bool settled = state != shared_table::kFilling && state != shared_table::kRetiring;
    if (settled || !waits.wait()) return state;
  }
}

bool is_file(const shared_table::File& file, const FileFacts& facts) {
  return file.inode == facts.inode && file.device == facts.device && file.born == facts.born;
}

bool has_path(const shared_table::SharedTable& table, const shared_table::File& file,
              const char* path, std::uint64_t length) {
  if (file.path_length != length) return false;
  const char* own = file.path;
  if (length > shared_table::kShortPath) {
    constexpr std::uint64_t kAll = shared_table::kLongPathBytes;
    const std::uint64_t at = file.long_path;
    if (at > kAll || length > kAll - at) return false;
    own = table.long_paths + at;
  }
  return __builtin_memcmp(own, path, length) == 0;
}

enum class Fill { kDone, kOthersWereFaster, kNoRoomForPath };

// Fills an entry that is in state `state`.
Fill fill_file(shared_table::SharedTable& table, shared_table::File& file, std::uint32_t state,
               const FileFacts& facts, const char* path, std::uint64_t path_length) {
  const std::uint32_t before = state;
  if (!file.state.compare_exchange_strong(state, shared_table::kFilling)) {
    return Fill::kOthersWereFaster;
  }
  if (!put_path(table, file, path, path_length)) {
    file.state.store(before);
    return Fill::kNoRoomForPath;
  }
  file.device = facts.device;
  file.inode = facts.inode;
  file.born = facts.born;
  file.random.store(0);
  table.files_used.fetch_add(1);
  file.state.store(shared_table::kFilled, std::memory_order_release);
  return Fill::kDone;
}

// Combines the major and minor number as stat does.
std::uint64_t joined(std::uint64_t high, std::uint64_t low) {
  return (high & 0xfffff000) << 32 | (high & 0xfff) << 8 | (low & 0xffffff00) << 12 | (low & 0xff);
}

}  // namespace

void remember_environment() {
  if (table_path[0] != 0 || is_secure() || &::getenv == nullptr) return;
  const char* value = ::getenv(shared_table::kVariable);
  if (!value) return;
  for (std::size_t i = 0; value[i] != 0; ++i) {
    if (i + 1 == sizeof table_path) {
      table_path[0] = '?';  // paths from the tool are never this long
      table_path[1] = 0;
      return;
    }
    table_path[i] = value[i];
  }
}

shared_table::SharedTable* open_shared_table() {
  if (table_path[0] == 0) return nullptr;
  const char* problem = nullptr;
  long error = 0;
  const long fd = open_table(problem, error);
  shared_table::SharedTable* table = nullptr;
  if (fd >= 0) {
    table = map_table(fd, problem, error);
    raw_close(fd);
  }
  if (!table) say_unguarded(problem, error);
  return table;
}

// "Seccomp_filters:\t2" in the text of the status file.
std::uint32_t seccomp_filters() {
  const long fd = raw_open("/proc/thread-self/status", O_RDONLY);
  if (fd < 0) return 0;
  char text[4096];
  const long got = raw_read(fd, text, sizeof text);
  raw_close(fd);
  constexpr char kName[] = "\nSeccomp_filters:\t";
  constexpr long kLength = sizeof kName - 1;
  for (long i = 0; i + kLength < got; ++i) {
    if (!begins(text + i, static_cast<std::uint64_t>(got - i), kName)) continue;
    std::uint32_t number = 0;
    for (long at = i + kLength; at < got && text[at] >= '0' && text[at] <= '9'; ++at) {
      number = number * 10 + static_cast<std::uint32_t>(text[at] - '0');
    }
    return number;
  }
  return 0;
}

std::uint32_t own_process_number() { return number_of_link("/proc/self"); }
std::uint32_t own_thread_number() { return number_of_link("/proc/thread-self"); }

Registration register_process(shared_table::SharedTable& table) {
  const std::uint32_t number = own_process_number();
  const std::uint32_t index = number != 0 ? claim_entry(table, number) : shared_table::kProcesses;
  if (index == shared_table::kProcesses) {
    table.lost_processes.fetch_add(1);
    notify_tool(table);
    return {};
  }
  const Registration own{&table.processes[index], map_mappings(index)};
  if (!own.mappings) {
    own.process->state.store(shared_table::kEmpty);
    table.lost_processes.fetch_add(1);
    notify_tool(table);
    return {};
  }
  fill_process(own, number);
  return own;
}

void forget_registration(const Registration& registration) {
  if (registration.mappings) {
    raw(SYS_munmap, registration.mappings, sizeof(shared_table::MappingArray));
  }
}

FileEntry register_file(shared_table::SharedTable& table, const FileFacts& facts, const char* path,
                        std::uint64_t path_length) {
  const std::uint32_t first = hash(facts);
  Waits waits;
  Fill fill = Fill::kOthersWereFaster;
  FileEntry renamed;  // the file by another name
  for (int attempt = 0; attempt < 2; ++attempt) {
    std::uint32_t vacant = shared_table::kFiles, vacant_state = shared_table::kEmpty;
    for (std::uint32_t i = 0; i < shared_table::kFileProbes; ++i) {
      const std::uint32_t index = (first + i) % shared_table::kFiles;
      const shared_table::File& file = table.files[index];
      // Read first: if the entry is retired meanwhile, is_current() will see another generation.
      const FileEntry entry{index, file.generation.load()};
      const std::uint32_t state = settled_state(file, waits);
      if (state == shared_table::kFilled && is_file(file, facts)) {
        if (has_path(table, file, path, path_length)) return entry;
        renamed = entry;
      }
      const bool unused = state == shared_table::kEmpty || state == shared_table::kFree;
      if (unused && vacant == shared_table::kFiles) {
        vacant = index;
        vacant_state = state;
      }
      if (state == shared_table::kEmpty) break;  // later entries cannot have the file
    }
    if (vacant == shared_table::kFiles) break;
    shared_table::File& file = table.files[vacant];
    fill = fill_file(table, file, vacant_state, facts, path, path_length);
    if (fill == Fill::kDone) return {vacant, file.generation.load()};
    if (fill == Fill::kNoRoomForPath) break;
  }
  if (renamed.valid()) return renamed;  // the old name may still exist, as a link
  (fill == Fill::kNoRoomForPath ? table.lost_paths : table.lost_files).fetch_add(1);
  notify_tool(table);
  return {};
}

bool is_current(shared_table::SharedTable& table, const FileEntry& entry) {
  // Either the tool sees the mapping that was just published, or this sees that the entry is
  // retiring.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const shared_table::File& file = table.files[entry.index];
  Waits waits;
  return settled_state(file, waits) == shared_table::kFilled &&
         file.generation.load() == entry.generation;
}

void notify_tool(shared_table::SharedTable& table) {
  table.changes.fetch_add(1);
  if (table.waiters.load() != 0) futex_wake(table.changes, 1 << 30, Among::kProcesses);
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
