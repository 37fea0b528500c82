// The tool's side of the memory that it shares with the programs it guards.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/mutex.h"
#include "process_guard/shared_table_layout.h"

namespace evenkeel {

// A file mapping of a guarded program.
struct TableEntry {
  std::uint32_t process = 0, mapping = 0, generation = 0;  // which entry of the table
  std::uint32_t file = 0, file_generation = 0;
  pid_t pid = 0;
  std::uint32_t descriptor = 0;  // that the program mapped the file with
  std::uint64_t begin = 0, end = 0, offset = 0;
  bool shared = false, writable = false, advised = false;
};

struct TableFile {
  std::uint64_t device = 0, inode = 0, born = 0;  // as in stat; born 0: unknown
  std::string path;  // as the program saw it; may be gone or another file by now
};

// How many entries could not be registered.
struct LostCounts {
  std::uint32_t files = 0, processes = 0, mappings = 0;  // the table was full
  std::uint32_t paths = 0;                               // files whose long path did not fit
  // Processes with their own seccomp filter. They are left alone.
  std::uint32_t sandboxed = 0;
};

// Owns the shared memory. Thread-safe. Values that programs write are checked, so that none of
// their indexes leads out of the tables.
class SharedTableOwner {
 public:
  struct Options {
    std::uint64_t least_bytes = 1 << 20;
    int first_advice = 0;
    // retire_files() does nothing while the table has no more entries of files than this.
    std::uint32_t keep_files = shared_table::kFiles / 4;
    // How long a registered process may be without its thread; see mappings().
    std::chrono::nanoseconds thread_start = std::chrono::milliseconds(500);
  };
  // Throws Error (kSystem) if the memory cannot be created.
  explicit SharedTableOwner(const Options& options);
  ~SharedTableOwner();
  SharedTableOwner(const SharedTableOwner&) = delete;
  SharedTableOwner& operator=(const SharedTableOwner&) = delete;

  // "EVENKEEL_GUARD=/proc/123/fd/5", for the environment of the command.
  std::string variable() const;

  // Waits until something has changed since `seen`, or until the timeout. Returns whether it has,
  // and updates `seen`. interrupt() makes a waiting call, or else the next one, return true at
  // once.
  bool wait(std::uint32_t& seen, std::chrono::nanoseconds timeout);
  void interrupt();

  // Returns all registered mappings. Frees the entries of processes that have ended or called exec.
  // A child of fork that calls exec before its thread has started leaves an entry that looks like a
  // slow start: after Options::thread_start its mappings are left out until there is a thread or
  // the process ends.
  std::vector<TableEntry> mappings();
  // Whether the entry still is this mapping.
  bool holds(const TableEntry& mapping) const;
  TableFile file(std::uint32_t index) const;
  // Does nothing if the entry belongs to another file by now.
  void set_random(std::uint32_t file, std::uint32_t generation, bool random);
  // Frees the entry of an ended process. `registration`: what Process::registrations was before the
  // process was found to have ended. A program that it started by exec has the same pid, and may
  // have taken over the entry since then.
  void forget_process(std::uint32_t process, pid_t pid, std::uint32_t registration);
  // Frees the entries of files that are no longer mapped if more than Options::keep_files entries
  // are in use.
  void retire_files();
  std::uint32_t files_used() const { return table_->files_used.load(); }
  LostCounts lost() const;

  // Number of the last request of a program that wants to unmount a file system. Answer it after
  // closing the unmapped files.
  std::uint32_t unmount_requests() const;
  void answer_unmount_requests(std::uint32_t request);

  struct Answer {
    int error = 0;  // 0, an errno of madvise, ESTALE (the mapping is gone), ENODATA (the kernel
                    // does not report what is mapped there), EBUSY or ETIMEDOUT
    bool dropped = false;  // MADV_DONTNEED was used
  };
  // Makes the mapping's own process release pages, and waits for that until the timeout. A command
  // that is not answered stays posted; until it is, other commands to that process return EBUSY. If
  // the process ends meanwhile, the answer is ESTALE.
  Answer release(const TableEntry& mapping, std::uint64_t begin, std::uint64_t end,
                 std::chrono::nanoseconds timeout);
  Answer advise(const TableEntry& mapping, std::uint64_t begin, std::uint64_t end, int advice,
                std::chrono::nanoseconds timeout);

  // The same for many ranges and processes at once: one start for each range, then one finish for
  // each mapping. The first finish posts the commands to all processes. A start returns 0, an error
  // as above, or ENOBUFS: the command is full. Then call finish_full_command() and start again. It
  // does not post the commands to other processes, so more ranges can be added to them.
  int start_command(const TableEntry& mapping, std::uint64_t begin, std::uint64_t end,
                    shared_table::CommandKind kind, int advice = 0) EXCLUDES(mutex_);
  Answer finish_command(const TableEntry& mapping, std::chrono::nanoseconds timeout)
      EXCLUDES(mutex_);
  Answer finish_full_command(const TableEntry& mapping, std::chrono::nanoseconds timeout)
      EXCLUDES(mutex_);

 private:
  struct Cached {  // mappings of a process, as of its `changes`
    std::uint32_t pid = 0, changes = 0;
    std::vector<TableEntry> mappings;
  };
  struct Pending {  // a command that is being put together, or has been posted
    shared_table::CommandKind kind{};
    int advice = 0;
    std::vector<shared_table::CommandRange> ranges;
    bool posted = false;
    std::uint32_t number = 0;
  };

  static bool is_alive(const shared_table::Process& process);
  bool is_overdue(std::uint32_t process) REQUIRES(mutex_);
  bool has_file(std::uint32_t index, std::uint32_t generation) const;
  shared_table::Mapping* array(std::uint32_t process) const;  // null if it cannot be mapped
  void read_mapping(std::uint32_t process, std::uint32_t index, std::vector<TableEntry>& out) const;
  std::vector<TableEntry> read_mappings(std::uint32_t process) const;
  std::vector<bool> referenced_files() const;
  void post(std::uint32_t process, Pending& pending) REQUIRES(mutex_);
  Answer take_answer(std::uint32_t process, std::uint32_t number, std::chrono::nanoseconds timeout)
      EXCLUDES(mutex_);
  Answer wait_for_answer(std::uint32_t process, std::uint32_t number,
                         std::chrono::nanoseconds timeout) const;

  const Options options_;
  Fd fd_;
  shared_table::SharedTable* table_ = nullptr;
  // By process. Null until it is mapped.
  mutable std::vector<std::atomic<shared_table::Mapping*>> arrays_;
  Mutex mutex_;
  std::map<std::uint32_t, Cached> cached_ GUARDED_BY(mutex_);    // by process
  std::map<std::uint32_t, Pending> pending_ GUARDED_BY(mutex_);  // by process
  struct Starting {
    std::uint32_t registration = 0;
    std::chrono::steady_clock::time_point since;
  };
  std::map<std::uint32_t, Starting> starting_ GUARDED_BY(mutex_);  // processes without a thread
  std::uint32_t retire_at_ GUARDED_BY(mutex_) = 0;                 // number of used file entries
};

}  // namespace evenkeel
