// The page that a process shows to `evenkeel top`: a small file with its sums since it began,
// usually in tmpfs.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "metrics/folder.h"
#include "metrics/live.h"

namespace evenkeel {

// The file begins with kPageMagic. Numbers are in the byte order of this machine. Add new fields at
// the end, before `check`, and change the magic.
struct PageData {
  std::uint64_t magic = 0;
  std::uint64_t size = 0;      // of this struct
  std::uint64_t sequence = 0;  // grows with each write
  std::uint64_t pid = 0;       // in the PID namespace of the process itself
  std::uint64_t arrays = 0, loaders = 0, budgets = 0;
  std::uint64_t limit = 0, in_use = 0, cached = 0, peak = 0;
  std::uint64_t cache_hits = 0, cache_misses = 0, cache_bytes = 0;
  std::uint64_t bytes_from_cache = 0, bytes_from_mapping = 0, bytes_from_page_cache = 0;
  std::uint64_t bytes_from_disk = 0, bytes_from_network = 0, bytes_from_disk_cache = 0;
  std::uint64_t requests = 0, in_flight = 0, wait_ns = 0, retries = 0, hedges = 0;
  std::uint64_t batches = 0, batch_wait_ns = 0;
  char name[32] = {};       // of the program, zero-terminated
  std::uint64_t check = 0;  // checksum of all before it, to detect a page that was being written
};
// 8 letters: "EVKTOP01".
constexpr std::uint64_t kPageMagic = 0x3130504F544B5645;

enum class PageState : std::uint8_t {
  kWritten,
  kLost,    // the file was removed or its descriptor was closed: a new page may be created
  kFailed,  // no space or no permission
};

// The page of this process. It has a lock on its file, which the kernel releases when the process
// ends. The lock shows others that the process is alive, even if they are in another PID namespace.
// Copies refer to the same file. A child of fork must not write to it.
class Page {
 public:
  // Creates the file in the folder of this user. Empty if that is not possible, if EVENKEEL_TOP is
  // "off", or if this process is exiting. Removes the pages that killed processes of this user have
  // left. The file is removed when this process exits.
  static std::optional<Page> create();
  PageState write(const ProcessFigures& figures);
  // Closes the file. That releases the lock, except in a child of fork, where the parent has it.
  void close();

 private:
  Page(int fd, const PageIdentity& identity);
  int fd_;
  PageIdentity identity_;
  PageData next_;
};

struct SeenPage {
  std::string file;  // its path; does not change during the lifetime of the process
  uid_t user = 0;
  // In the PID namespace of this process; 0 if the process has no PID there.
  pid_t pid = 0;
  PageData data;
};
// Returns the pages of living processes except this one: those of this user, and for root those of
// all users. Skips files that are not pages, whatever they contain.
std::vector<SeenPage> read_pages(const std::vector<PagePlace>& places = visible_page_places());

// Parses the bytes of a file. Empty if they are not a whole, consistent page.
std::optional<PageData> parse_page(const void* bytes, std::size_t length);
std::uint64_t page_check(const PageData& data);

}  // namespace evenkeel
