// The page that a process shows to `evenkeel top`: a small file in memory, its sums since it began.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "metrics/folder.h"
#include "metrics/live.h"

namespace evenkeel {

// Bytes 0 to 7 of the file are kPageMagic; all else is 64-bit numbers of this machine. A new field
// goes to the end, before `check`, with a new magic.
struct PageData {
  std::uint64_t magic = 0;
  std::uint64_t size = 0;      // of this struct
  std::uint64_t sequence = 0;  // raised with each change
  std::uint64_t pid = 0;       // as the process itself knows it
  std::uint64_t arrays = 0, loaders = 0, budgets = 0;
  std::uint64_t limit = 0, in_use = 0, cached = 0, peak = 0;
  std::uint64_t cache_hits = 0, cache_misses = 0, cache_bytes = 0;
  std::uint64_t bytes_from_cache = 0, bytes_from_mapping = 0, bytes_from_page_cache = 0;
  std::uint64_t bytes_from_disk = 0, bytes_from_network = 0, bytes_from_disk_cache = 0;
  std::uint64_t requests = 0, in_flight = 0, wait_ns = 0, retries = 0, hedges = 0;
  std::uint64_t batches = 0, batch_wait_ns = 0;
  char name[32] = {};       // of the program, ended by a zero
  std::uint64_t check = 0;  // of all before it: tells a page that was read while it changed
};
// 8 letters: "EVKTOP01".
constexpr std::uint64_t kPageMagic = 0x3130504F544B5645;

// The page of this process. Holds a lock on its file that the kernel ends with the process: this is
// how others tell that it lives, whatever numbers processes have where they look from. Copies are
// the same page. A child of fork must not write to it.
enum class PageState : std::uint8_t {
  kWritten,
  kLost,    // removed by somebody, or its descriptor was closed: a new page may be made
  kFailed,  // no room, or no permission
};
class Page {
 public:
  // In the folder of this user; empty where that is not possible, or EVENKEEL_TOP is "off". Removes
  // what processes of this user left behind that were killed. The file goes when this process ends.
  static std::optional<Page> create();
  PageState write(const ProcessFigures& figures);
  // Ends the lock, except in a child of fork: the lock is its parent's.
  void close();

 private:
  Page(int fd, const PageIdentity& identity);
  int fd_;
  PageIdentity identity_;
  PageData next_;
};

struct SeenPage {
  std::string file;  // its path: it stays the same as long as the process lives
  uid_t user = 0;
  // As seen from here; 0 where the process is in a container and has no number here.
  pid_t pid = 0;
  PageData data;
};
// Pages of processes that live, but for this one: those of this user, and for root of all users.
// Files that are no such pages are passed over, whatever they hold.
std::vector<SeenPage> read_pages(const std::vector<PagePlace>& places = visible_page_places());

// What was read from a file, if it is a whole page that was not changing meanwhile.
std::optional<PageData> parse_page(const void* bytes, std::size_t length);
std::uint64_t page_check(const PageData& data);

}  // namespace evenkeel
