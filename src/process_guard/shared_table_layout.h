// The memory that `evenkeel guard` and the library it preloads share. Programs write what they map;
// the tool writes which pages to release. Both sides include this header, so it has plain numbers,
// no pointers and nothing that needs a C++ runtime.
//
// The memory is a sparse memfd: an entry takes memory once it is used. The SharedTable comes first.
// After it, at kMappingsOffset, comes one MappingArray for each process entry. A program maps the
// SharedTable and its own array; the tool maps the arrays of all registered processes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace evenkeel::shared_table {

// The environment variable with the path of the memory ("/proc/123/fd/5"), for the tool's children.
inline constexpr char kVariable[] = "EVENKEEL_GUARD";
// The name of the memfd. The library opens nothing else.
inline constexpr char kName[] = "evenkeel-guard";

inline constexpr std::uint32_t kMagic = 0x6b6e6c65, kVersion = 3;
inline constexpr std::uint32_t kFiles = 1 << 17;   // entries of a hash table
inline constexpr std::uint32_t kFileProbes = 256;  // entries to search, from the hash on
inline constexpr std::uint32_t kProcesses = 4096;
inline constexpr std::uint32_t kMappings = 1 << 16;  // of one process; vm.max_map_count is 65,530
inline constexpr std::size_t kShortPath = 208;
inline constexpr std::size_t kLongPathBytes = std::size_t{16} << 20;
inline constexpr std::uint32_t kCommandRanges = 32;

using Word = std::atomic<std::uint32_t>;
using Number = std::atomic<std::uint64_t>;
static_assert(Word::is_always_lock_free && sizeof(Word) == 4);
static_assert(Number::is_always_lock_free && sizeof(Number) == 8);

enum State : std::uint32_t {
  kEmpty = 0,     // never used
  kFilling = 1,   // belongs to the thread that set this state
  kFilled = 2,    // complete
  kRetiring = 3,  // the tool is checking whether the process or a mapping of the file still exists
  kFree = 4,      // files only: was used and may be filled again
};

struct File {
  Word state;
  Word generation;  // grows when the entry becomes free
  Word random;      // set by the tool: advise MADV_RANDOM for new mappings of the file
  std::uint32_t path_length;
  std::uint64_t device, inode, born;  // as in stat; born: statx's birth time in ns, or 0
  // If the path is longer than kShortPath: its place in SharedTable::long_paths, and the size of
  // that place. The entry keeps the place when it becomes free.
  std::uint32_t long_path, long_path_bytes;
  char path[kShortPath];  // as in the program's /proc
};
static_assert(sizeof(File) == 256);

enum MappingFlags : std::uint32_t {
  kShared = 1,
  kWritable = 2,  // is writable or was at some time
  kAdvised = 4,   // the program itself called madvise: normal, random or sequential. From then on
                  // kLimitReadahead does nothing, and kAdvise only carries out MADV_NOHUGEPAGE
};

// A reader loads `generation` before and after the other members. They are consistent if it is the
// same and the state is kFilled both times. Flags may change without a new generation.
struct Mapping {
  Word state;
  Word generation;  // grows each time the entry is filled, and whenever the range changes
  Word file, file_generation;
  Word flags;
  Word descriptor;  // that the program mapped the file with; may be closed or reused by now
  Number begin, end, offset;  // addresses; offset of `begin` in the file
};
static_assert(sizeof(Mapping) == 48);

struct MappingArray {
  Mapping mappings[kMappings];
};
static_assert(sizeof(MappingArray) % (64 << 10) == 0, "arrays begin at a page of any size");

enum CommandKind : std::uint32_t {
  kRelease = 1,  // takes pages out of the resident set: MADV_DONTNEED if it cannot lose data, else
                 // MADV_PAGEOUT
  kAdvise = 2,   // madvise with Command::advice: MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL or
                 // MADV_NOHUGEPAGE
  kPageOut = 3,  // writes dirty pages with msync, then MADV_PAGEOUT: for files that the tool
                 // cannot open
  kLimitReadahead = 4,  // MADV_HUGEPAGE and MADV_RANDOM: a fault then fetches 2 MiB
};

struct CommandRange {
  std::uint32_t mapping, generation;  // ESTALE if another mapping has the entry by now
  std::uint64_t begin, end;           // addresses within it
  std::int32_t result;                // 0 or an errno
  std::uint32_t dropped;              // whether MADV_DONTNEED was used
};

// Each process has one command at a time. The tool fills it, sets `posted` to the next number and
// wakes the program's thread. The thread carries it out, fills the results, sets `done` to that
// number and wakes the tool.
struct Command {
  Word posted, done;
  std::uint32_t kind, advice, count;
  CommandRange ranges[kCommandRanges];
};

// Process and thread IDs are those of the /proc through which the table was opened.
struct Process {
  Word state;
  Word pid;
  Word changes;        // grows with each change of its mappings
  Word thread;         // the ID of the thread that carries out commands; 0: none
  Word mappings_used;  // entries from this index on are empty
  Word registrations;  // grows each time a process takes the entry
  Command command;
};

struct SharedTable {
  std::uint32_t magic, version;
  std::uint64_t size;                              // of the whole memory
  std::uint64_t least_bytes;                       // smaller mappings are not registered
  std::uint32_t first_advice;                      // for madvise of each new mapping; 0: none
  std::uint32_t seccomp_filters;                   // of the tool; its children inherit them
  Word changes;                                    // a futex: grows after any change below
  Word waiters;                                    // threads that wait for `changes`
  Word lost_files, lost_processes, lost_mappings;  // not registered because the table was full
  Word lost_paths;                                 // files whose long path did not fit
  Word sandboxed_processes;                        // not guarded, see Agent::leave
  Word unmount_requests, unmount_answers;          // see preload/hooks.cc, umount2
  Word files_used;                                 // filled entries, approximately
  Word processes_used;                             // entries from this index on were never used
  Number long_paths_used;
  Process processes[kProcesses];
  File files[kFiles];
  char long_paths[kLongPathBytes];
};

inline constexpr std::uint64_t kMappingsOffset =
    (sizeof(SharedTable) + (64 << 10) - 1) / (64 << 10) * (64 << 10);
inline constexpr std::uint64_t kTableBytes =
    kMappingsOffset + std::uint64_t{kProcesses} * sizeof(MappingArray);
inline constexpr std::uint64_t mappings_offset(std::uint32_t process) {
  return kMappingsOffset + std::uint64_t{process} * sizeof(MappingArray);
}

}  // namespace evenkeel::shared_table
