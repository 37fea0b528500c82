// Looks up mappings of this process in /proc/PID/maps: with PROCMAP_QUERY (Linux 6.11), or by
// reading it as text. Allocates nothing. One thread at a time.
#pragma once

#include "preload/mapping_table.h"

namespace evenkeel::preload {

class ProcMaps {
 public:
  // A thread with descriptors of its own may keep the file open. Where it shares the program's
  // descriptors the file is opened for each look: programs close what they did not open.
  explicit ProcMaps(bool keep_open);
  ~ProcMaps();
  ProcMaps(const ProcMaps&) = delete;
  ProcMaps& operator=(const ProcMaps&) = delete;

  struct Finding {
    bool readable = false;  // whether the kernel answered
    bool same = false;      // the range is this file at this offset, shared or private, without gap
    bool writable = false;  // some of it is now
    std::uint64_t device = 0;
  };
  // Whether the range, which lies in the entry, still is what the entry says. The device must be
  // the entry's, where that has been seen; what stat says of it is another number on some file
  // systems.
  Finding look(Range range, const Entry& entry);

  // For tests: as on a kernel before 6.11.
  void use_text() { query_works_ = false; }

 private:
  long fd_ = -1;
  bool keep_open_;
  bool query_works_ = true;
  char buffer_[4096];
};

}  // namespace evenkeel::preload
