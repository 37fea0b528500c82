// The tool's side of the memory that it shares with the programs it guards.
#pragma once

#include <sys/types.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "base/fd.h"
#include "process_guard/shared_table_layout.h"

namespace evenkeel {

// A file mapping of a guarded program.
struct TableEntry {
  std::uint32_t process = 0, mapping = 0, generation = 0;  // slots
  std::uint32_t file = 0;
  pid_t pid = 0;
  std::uint64_t begin = 0, end = 0, offset = 0;
  bool shared = false, writable = false, advised = false;
};

struct TableFile {
  std::uint64_t device = 0, inode = 0, born = 0;  // as stat has them; born 0: not told
  std::string path;  // as the program saw it; may be gone, or another's by now
};

// Thread-safe, but for the constructor. What programs write is checked: no number of theirs leads
// out of the tables.
class SharedTableOwner {
 public:
  struct Options {
    std::uint64_t least_bytes = 1 << 20;
    int first_advice = 0;
  };
  // Throws Error (kSystem) when there is no memory for it.
  explicit SharedTableOwner(const Options& options);
  ~SharedTableOwner();
  SharedTableOwner(const SharedTableOwner&) = delete;
  SharedTableOwner& operator=(const SharedTableOwner&) = delete;

  // "EVENKEEL_GUARD=/proc/123/fd/5", for the environment of the command.
  std::string variable() const;

  // True when something has changed since `seen`, which is brought up to date; waits for that as
  // long as told. `interrupt` makes a waiting call, or else the next one, return at once with true.
  bool wait(std::uint32_t& seen, std::chrono::nanoseconds timeout);
  void interrupt();

  // All that is there now. Processes that have ended, or become another program, are taken off.
  std::vector<TableEntry> mappings();
  // Whether it is the same mapping still.
  bool holds(const TableEntry& mapping) const;
  TableFile file(std::uint32_t slot) const;
  void set_random(std::uint32_t file, bool random);
  // The slot of an ended process is free again.
  void forget_process(std::uint32_t process, pid_t pid);
  std::uint32_t lost() const;

  struct Answer {
    int error = 0;  // 0, an errno of madvise, ESTALE (no such mapping any more), ENODATA (the
                    // kernel does not tell what is mapped there), EBUSY or ETIMEDOUT
    bool dropped = false;  // MADV_DONTNEED was used
  };
  // Has a part of a mapping let go, or advised, by its own process, and waits for that: as long as
  // told. An order that is not answered stays posted; until it is, others to that process are
  // answered EBUSY. A process that ends meanwhile is answered for by ESTALE.
  Answer let_go(const TableEntry& mapping, std::uint64_t begin, std::uint64_t end,
                std::chrono::nanoseconds timeout);
  Answer advise(const TableEntry& mapping, std::uint64_t begin, std::uint64_t end, int advice,
                std::chrono::nanoseconds timeout);

 private:
  static bool is_alive(const shared_table::Process& process);
  bool has_file(std::uint32_t slot) const;
  void read_mapping(std::uint32_t process, std::uint32_t slot, std::vector<TableEntry>& out) const;
  Answer order(const TableEntry& mapping, std::uint64_t begin, std::uint64_t end,
               shared_table::OrderKind kind, int advice, std::chrono::nanoseconds timeout);
  Fd fd_;
  shared_table::SharedTable* board_ = nullptr;
  std::array<std::mutex, shared_table::kProcesses> ordering_;  // one order at a time for each
};

}  // namespace evenkeel
