// The memory that `evenkeel guard` and the library it preloads share: the programs write what they
// map, the tool writes what is to be let go. Plain numbers, no pointers, nothing of a C++ runtime:
// this header is for both.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace evenkeel::shared_table {

// Where the memory can be opened ("/proc/123/fd/5"), for the tool's children.
inline constexpr char kVariable[] = "EVENKEEL_GUARD";
// What that is called: the library opens nothing else.
inline constexpr char kName[] = "evenkeel-guard";

inline constexpr std::uint32_t kMagic = 0x6b6e6c65, kVersion = 1;
inline constexpr std::uint32_t kFiles = 1 << 14;  // slots of a hash table; never emptied
inline constexpr std::uint32_t kProcesses = 256;
inline constexpr std::uint32_t kMappings = 2048;  // of one process
inline constexpr std::size_t kPathBytes = std::size_t{16} << 20;

using Word = std::atomic<std::uint32_t>;
using Number = std::atomic<std::uint64_t>;
static_assert(Word::is_always_lock_free && sizeof(Word) == 4);
static_assert(Number::is_always_lock_free && sizeof(Number) == 8);

// A slot is empty, being filled (by who changed it from empty), or filled and then complete.
enum State : std::uint32_t { kEmpty = 0, kFilling = 1, kFilled = 2 };

struct File {
  Word state;
  Word random;  // by the tool: new mappings of it are to be advised MADV_RANDOM
  std::uint64_t device, inode, born;  // as stat has them; born: statx's birth time in ns, 0 where
                                      // it is not told
  std::uint64_t path, path_length;    // in SharedTable::paths, as the program's /proc names it
};

enum MappingFlags : std::uint32_t {
  kShared = 1,
  kWritable = 2,  // has been writable at some time
  kAdvised = 4,   // the program itself has advised how it will read it: normal, random, sequential
};

// Who reads it looks at `generation` before and after: the same, and filled both times, means that
// the numbers belong together. Flags may come without a new generation.
struct Mapping {
  Word state;
  Word generation;  // grows each time the slot is filled, and whenever the range changes
  Word file;
  Word flags;
  Number begin, end, offset;  // addresses; offset of `begin` in the file
};

enum OrderKind : std::uint32_t {
  kLetGo = 1,   // pages leave the resident set: MADV_DONTNEED where it can lose nothing, else
                // MADV_PAGEOUT
  kAdvise = 2,  // madvise with Order::advice: MADV_NORMAL, MADV_RANDOM or MADV_SEQUENTIAL
};

// One at a time for each process. The tool fills it, sets `posted` to the next number and wakes it;
// the program's thread carries it out, fills `result`, sets `done` to that number and wakes it.
struct Order {
  Word posted, done;
  std::uint32_t kind, advice;
  std::uint32_t mapping, generation;  // which; ESTALE when the slot is another's by now
  std::uint64_t begin, end;           // addresses within it
  std::int32_t result;                // 0 or an errno
  std::uint32_t dropped;              // kLetGo: whether MADV_DONTNEED was used
};

// Numbers of processes and threads are those of the /proc through which the board was opened.
struct Process {
  Word state;
  Word pid;
  Word changes;        // grows with each change of `mappings`
  Word thread;         // the number of the thread that takes orders; 0: none
  Word mappings_used;  // slots from here on are empty
  Order order;
  Mapping mappings[kMappings];
};

struct SharedTable {
  std::uint32_t magic, version;
  std::uint64_t size;          // of this struct
  std::uint64_t least_bytes;   // of a mapping that is told of
  std::uint32_t first_advice;  // madvise given to each new mapping; 0 is none
  Word bell;                   // grows and is woken when anything below has changed
  Word waiting;                // who waits for the bell: where nobody does, nobody need be woken
  Word lost;                   // files, processes and mappings for which there was no room
  Word processes_used;         // slots from here on were never used
  Number paths_used;
  File files[kFiles];
  Process processes[kProcesses];
  char paths[kPathBytes];
};

}  // namespace evenkeel::shared_table
