#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <unordered_set>

#include "evenkeel/error.h"
#include "evenkeel/meter.h"
#include "meter/children.h"
#include "meter/proc.h"
#include "meter/tracked_process.h"

namespace evenkeel {

class ProcessTree::Impl {
 public:
  explicit Impl(pid_t root) {
    auto process = TrackedProcess::open(root, 0);
    if (!process || !process->living()) {
      throw Error::system("measure process", process ? ESRCH : errno,
                          "process " + std::to_string(root))
          .in(proc_path(root, "stat"));
    }
    tracked_.push_back(std::move(*process));
    if (timer_.due(LookTimer::Clock::now())) look();
    before_ = done_by_all();
  }

  std::optional<TreeMemory> sample() {
    if (timer_.due(LookTimer::Clock::now())) look();
    // Parents first: if a child still exists when it is read, its parent had not inherited its
    // counts when the parent was read.
    for (TrackedProcess& process : tracked_) process.read();
    settle_ended();
    done_.raise_to(done_by_all().above(before_));

    TreeMemory tree;
    tree.memory = memory_of_all();
    for (const TrackedProcess& process : tracked_) tree.processes += process.living();
    if (tree.processes == 0) return std::nullopt;
    tree.counters = counters();
    tree.unmeasured = unmeasured_;
    return tree;
  }

  ProcessMemory sample_resident() {
    if (timer_.due(LookTimer::Clock::now())) look();
    for (TrackedProcess& process : tracked_) process.read_resident();
    return memory_of_all();
  }

  ProcessCounters counters() const {
    ProcessCounters counters{done_.major_faults, done_.minor_faults, seconds_of_ticks(done_.ticks),
                             std::nullopt};
    if (knows_disk_) counters.disk_read = done_.disk_read;
    return counters;
  }

  std::vector<pid_t> processes() const {
    std::vector<pid_t> living;
    for (const TrackedProcess& process : tracked_) {
      if (process.living()) living.push_back(process.pid());
    }
    return living;
  }

  ProcessMemory distinct() const {
    ProcessMemory memory = memory_of_all();
    if (!sharing_known_) return memory;
    std::vector<ResidentPages> pages;
    for (std::size_t kind = 0; kind < kResidentKinds.size(); ++kind) {
      pages.clear();
      for (const TrackedProcess& process : tracked_) {
        if (process.living()) pages.push_back(process.pages(kind));
      }
      const bool anon = kResidentKinds[kind] == &ProcessMemory::anon;
      memory.*kResidentKinds[kind] =
          distinct_bytes(pages, shared_once_[kind], anon ? Growth::kOwn : Growth::kMayBeShared);
    }
    return memory;
  }

  std::optional<std::uint64_t> pss() {
    look();  // pages shared with an unknown child would seem to be shared with other processes
    std::vector<std::pair<TrackedProcess*, ProcessPss>> walked;
    std::uint64_t sum = 0;
    bool kinds_known = true;
    for (TrackedProcess& process : tracked_) {
      if (!process.living() || process.borrows_memory()) continue;
      errno = 0;
      const auto pss = read_pss(process.pid());
      if (!pss && (errno == EACCES || errno == EPERM)) return std::nullopt;
      if (!pss) continue;  // it may have ended by now
      sum += pss->total;
      kinds_known &= pss->kinds_known;
      walked.emplace_back(&process, *pss);
    }
    if (!kinds_known) return sum;
    sharing_known_ = true;
    shared_once_ = {};
    for (const auto& [process, pss] : walked) {
      process->set_walked(pss, walked.size());
      for (std::size_t kind = 0; kind < kResidentKinds.size(); ++kind) {
        const ResidentPages& pages = process->pages(kind);
        if (pages.shared() == 0) continue;
        shared_once_[kind] += pss.kinds[kind] - std::min(pss.kinds[kind], pages.own());
      }
    }
    return sum;
  }

 private:
  static void add(const ProcessMemory& one, ProcessMemory& sum) {
    sum.anon += one.anon;
    sum.file += one.file;
    sum.shmem += one.shmem;
    sum.page_tables += one.page_tables;
    sum.swap += one.swap;
  }

  ProcessMemory memory_of_all() const {
    ProcessMemory sum;
    for (const TrackedProcess& process : tracked_) {
      if (process.living()) add(process.memory(), sum);
    }
    return sum;
  }

  static bool can_look() {
    const Fd proc(::open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    return static_cast<bool>(proc);
  }

  void look() {
    const auto began = LookTimer::Clock::now();
    std::unordered_set<pid_t> known;
    for (const TrackedProcess& process : tracked_) {
      if (!process.gone()) known.insert(process.pid());
    }
    children_.refresh();
    unmeasured_ = can_look() ? 0 : 1;
    for (std::size_t i = 0; i < tracked_.size(); ++i) {  // grandchildren are appended meanwhile
      if (!tracked_[i].living()) continue;
      for (const pid_t child : children_.of(tracked_[i].pid())) {
        if (known.insert(child).second) follow(child, i);
      }
    }
    timer_.looked(began, LookTimer::Clock::now());
  }

  // A child may have allocated memory before it is found, so it shares at most what its parent has.
  void follow(pid_t pid, std::size_t parent) {
    if (auto process = TrackedProcess::open(pid, tracked_[parent].pid())) {
      tracked_[parent].read_resident();
      process->forked_from(tracked_[parent].memory().anon);
      tracked_.push_back(std::move(*process));
    } else if (errno != ESRCH) {
      ++unmeasured_;
    }
  }

  Tally done_by_all() {
    Tally sum = ended_;
    for (const TrackedProcess& process : tracked_) {
      sum.add(process.tally());
      knows_disk_ |= process.knows_disk();
    }
    return sum;
  }

  // The kernel adds the counts of an ended process to the parent that waits for it. Then they must
  // not be counted a second time. The parent was read first, so it may show them only in the next
  // sample. If no parent inherits them (it ignores its children, or is not in the tree), the last
  // counts seen are added to ended_.
  void settle_ended() {
    std::unordered_set<const TrackedProcess*> settled;
    for (TrackedProcess& process : tracked_) {
      if (!process.gone()) continue;
      TrackedProcess* heir = heir_of(process);
      const bool inherited = heir != nullptr && heir->inherited(process.tally());
      if (!inherited && process.was_gone()) ended_.add(process.tally());
      if (inherited || process.was_gone()) settled.insert(&process);
    }
    if (settled.empty()) return;
    std::vector<TrackedProcess> rest;
    for (TrackedProcess& process : tracked_) {
      if (!settled.contains(&process)) rest.push_back(std::move(process));
    }
    tracked_ = std::move(rest);
  }

  // The nearest ancestor that is not gone. Null if there is none in the tree.
  TrackedProcess* heir_of(const TrackedProcess& process) {
    pid_t parent = process.parent();
    for (std::size_t steps = 0; steps < tracked_.size(); ++steps) {
      TrackedProcess* found = nullptr;
      for (TrackedProcess& other : tracked_) {
        if (other.pid() == parent && (!found || found->gone())) found = &other;
      }
      if (!found || !found->gone()) return found;
      parent = found->parent();
    }
    return nullptr;
  }

  Children children_;
  LookTimer timer_;
  std::vector<TrackedProcess> tracked_;  // parents before children
  Tally before_;                         // when the tree was created
  Tally ended_;                          // of ended processes whose counts no parent inherited
  Tally done_;                           // since the tree was created
  bool knows_disk_ = false;
  std::uint32_t unmeasured_ = 0;
  bool sharing_known_ = false;  // a walk over the pages was permitted
  // Bytes that the shared pages occupied at the last walk, by kind, each page counted once.
  std::array<std::uint64_t, kResidentKinds.size()> shared_once_{};
};

ProcessTree::ProcessTree(pid_t root) : impl_(new Impl(root == 0 ? ::getpid() : root)) {}
ProcessTree::ProcessTree(ProcessTree&&) noexcept = default;
ProcessTree& ProcessTree::operator=(ProcessTree&&) noexcept = default;
ProcessTree::~ProcessTree() = default;

std::optional<TreeMemory> ProcessTree::sample() { return impl_->sample(); }
ProcessMemory ProcessTree::sample_resident() { return impl_->sample_resident(); }
ProcessCounters ProcessTree::counters() const { return impl_->counters(); }
std::vector<pid_t> ProcessTree::processes() const { return impl_->processes(); }

ProcessMemory ProcessTree::distinct() const { return impl_->distinct(); }
std::optional<std::uint64_t> ProcessTree::pss() { return impl_->pss(); }

}  // namespace evenkeel
