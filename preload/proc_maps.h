// Looks up mappings of this process in /proc/PID/maps: with PROCMAP_QUERY (Linux 6.11), or by
// reading it as text. Does not allocate memory. Not thread-safe.
#pragma once

#include "preload/mapping_table.h"

namespace evenkeel::preload {

class ProcMaps {
 public:
  // A thread with its own descriptor table may keep the file open. A thread that shares the
  // program's descriptors opens it for each look, because programs may close descriptors that they
  // did not open.
  explicit ProcMaps(bool keep_open);
  ~ProcMaps();
  ProcMaps(const ProcMaps&) = delete;
  ProcMaps& operator=(const ProcMaps&) = delete;

  struct Finding {
    bool readable = false;  // whether the kernel answered
    bool same = false;      // the range is this file at this offset, shared or private, without gap
    bool writable = false;  // some of it is writable now
    std::uint64_t device = 0;
  };
  // Compares the range, which must lie in the entry, with the entry. If the entry has a device, it
  // must be the same. The device of stat is not used, because it differs on some file systems.
  Finding look(Range range, const Entry& entry);

  // For tests: behaves as on a kernel before 6.11.
  void use_text() { query_works_ = false; }

 private:
  long fd_ = -1;
  bool keep_open_;
  bool query_works_ = true;
  char buffer_[4096];
};

}  // namespace evenkeel::preload
