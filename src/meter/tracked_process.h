// One process of a tree, looked at again and again.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <optional>

#include "base/fd.h"
#include "evenkeel/meter.h"
#include "meter/counters.h"
#include "meter/process.h"
#include "meter/shared_pages.h"

namespace evenkeel {

// What was done, by a process and by the children that it has waited for.
struct Tally {
  std::uint64_t major_faults = 0, minor_faults = 0, ticks = 0, disk_read = 0;
  void add(const Tally& other);
  void raise_to(const Tally& other);       // each the larger of the two
  Tally above(const Tally& before) const;  // never less than 0
};

// Its files stay open: a descriptor means this process, also when its number is given to another.
class TrackedProcess {
 public:
  // Reads once. `parent`: the process that it must be a child of, or 0. Empty, with errno, when it
  // has ended, is not a child of that one, or no descriptor is left (EMFILE).
  static std::optional<TrackedProcess> open(pid_t pid, pid_t parent);
  // It was forked by a process that has so many anonymous bytes: it shares no more than these.
  void forked_from(std::uint64_t anon);

  void read();
  // Resident memory alone, from a file that is cheaper to read. It does not tell RssFile from
  // RssShmem: what has changed of the two since read() counts as RssFile.
  void read_resident();

  pid_t pid() const { return pid_; }
  pid_t parent() const { return stat_.parent; }
  bool gone() const { return gone_; }          // waited for, and forgotten
  bool was_gone() const { return was_gone_; }  // a reading ago already
  bool living() const { return !gone_ && !stat_.zombie(); }
  bool borrows_memory() const { return lender_ != 0; }     // of its parent, before exec
  const ProcessMemory& memory() const { return memory_; }  // zeros for a zombie
  const ResidentPages& pages(std::size_t kind) const { return pages_[kind]; }  // of kResidentKinds
  // A walk over the pages of all `processes` of the tree found this. One process alone shares
  // nothing, whatever it shares with others outside the tree.
  void set_walked(const ProcessPss& pss, std::size_t processes);
  bool tells_disk() const { return disk_read_.has_value(); }
  Tally tally() const;  // after the end, the last seen

  // Whether the process has inherited the counts of a child since its last reading but one. Minor
  // faults tell, as no process lives without them; what was found is not found a second time.
  bool inherited(const Tally& child);

 private:
  TrackedProcess(pid_t pid, pid_t parent);
  void read_memory();
  void update_pages();
  void ask_about_loan();
  std::optional<ProcessMemory> memory_of_other_thread();

  pid_t pid_;
  pid_t lender_;  // whose memory it may be using (vfork), or 0
  Fd stat_file_, status_file_, io_file_, statm_file_;
  ProcessStat stat_;
  ProcessMemory memory_;
  std::array<ResidentPages, kResidentKinds.size()> pages_;
  std::optional<std::uint64_t> disk_read_;
  std::uint64_t inheritance_ = 0;
  bool gone_ = false, was_gone_ = false;
};

}  // namespace evenkeel
