// One process of a tree, measured repeatedly.
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

// Counts of a process and of the children that it has waited for.
struct Tally {
  std::uint64_t major_faults = 0, minor_faults = 0, ticks = 0, disk_read = 0;
  void add(const Tally& other);
  void raise_to(const Tally& other);       // takes the larger value of each count
  Tally above(const Tally& before) const;  // the difference, never less than 0
};

// Its files stay open: a descriptor keeps referring to this process even if its PID is reused.
class TrackedProcess {
 public:
  // Reads once. `parent`: the process that it must be a child of, or 0. Returns empty and sets
  // errno if it has ended, is not a child of `parent`, or no descriptor is left (EMFILE).
  static std::optional<TrackedProcess> open(pid_t pid, pid_t parent);
  // Sets the anonymous bytes of the process that forked it: it shares no more than these.
  void forked_from(std::uint64_t anon);

  void read();
  // Reads only resident memory, from a file that is cheaper to read. That file does not separate
  // RssFile from RssShmem: a change of their sum since read() counts as RssFile.
  void read_resident();

  pid_t pid() const { return pid_; }
  pid_t parent() const { return stat_.parent; }
  bool gone() const { return gone_; }          // has ended, and its parent has waited for it
  bool was_gone() const { return was_gone_; }  // was gone at the previous read() already
  bool living() const { return !gone_ && !stat_.zombie(); }
  bool borrows_memory() const { return lender_ != 0; }  // from its parent, between vfork and exec
  const ProcessMemory& memory() const { return memory_; }                      // zeros for a zombie
  const ResidentPages& pages(std::size_t kind) const { return pages_[kind]; }  // of kResidentKinds
  // Sets what a walk over the pages of all `processes` of the tree has found. If there is only one,
  // it shares nothing; what it shares with processes outside the tree does not matter.
  void set_walked(const ProcessPss& pss, std::size_t processes);
  bool knows_disk() const { return disk_read_.has_value(); }
  Tally tally() const;  // as last seen

  // Whether the process inherited the counts of a child between its last two readings. It is
  // detected by minor faults, which every process has. Faults that were matched to one child are
  // not matched to another.
  bool inherited(const Tally& child);

 private:
  TrackedProcess(pid_t pid, pid_t parent);
  void read_memory();
  void update_pages();
  void check_borrowing();
  std::optional<ProcessMemory> memory_of_other_thread();

  pid_t pid_;
  pid_t lender_;  // the process whose memory it may be using (vfork), or 0
  Fd stat_file_, status_file_, io_file_, statm_file_;
  ProcessStat stat_;
  ProcessMemory memory_;
  std::array<ResidentPages, kResidentKinds.size()> pages_;
  std::optional<std::uint64_t> disk_read_;
  std::uint64_t inheritance_ = 0;  // inherited minor faults not yet matched to a child
  bool gone_ = false, was_gone_ = false;
};

}  // namespace evenkeel
