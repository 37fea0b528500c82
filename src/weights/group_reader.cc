#include "weights/group_reader.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "array/row_extents.h"
#include "base/thread.h"
#include "evenkeel/error.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kOfFreshPages = sizeof(std::span<std::byte>) + sizeof(std::uint64_t);

std::uint64_t most_runs(const std::vector<ReadGroup>& groups) {
  std::uint64_t most = 0;
  for (const ReadGroup& group : groups) most = std::max<std::uint64_t>(most, group.runs.size());
  return most;
}

std::uint64_t group_memory(const Budget& budget, const std::vector<ReadGroup>& groups) {
  const std::uint64_t runs = std::accumulate(
      groups.begin(), groups.end(), std::uint64_t{0},
      [](std::uint64_t sum, const ReadGroup& group) { return sum + group.runs.size(); });
  return RowFeed::memory(budget.limit(), most_runs(groups)) + runs * sizeof(JobRun) +
         groups.size() * (sizeof(ReadGroup) + sizeof(Job) + kOfFreshPages);
}

}  // namespace

GroupReader::GroupReader(std::shared_ptr<Weights::Impl> weights, std::vector<ReadGroup> groups,
                         std::size_t ahead, std::uint64_t most_in_flight, bool fresh)
    : weights_(std::move(weights)),
      groups_(std::move(groups)),
      share_(weights_->budget.reserve_for_read(group_memory(weights_->budget, groups_), "plans")),
      jobs_(groups_.size()),
      feed_(weights_->layout, *weights_->engine, *this, std::nullopt, weights_->budget.limit()),
      most_in_flight_(most_in_flight),
      allowed_(std::max<std::size_t>(ahead, 1)),
      done_(groups_.size()) {
  std::vector<std::span<std::byte>> untouched;
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    const std::vector<JobRun>& runs = groups_[i].runs;
    jobs_[i].runs = runs;
    jobs_[i].roomy = groups_[i].roomy && std::ranges::all_of(runs, [&](const JobRun& run) {
                       return lies_as_in_file(run);
                     });
    if (!fresh || !groups_[i].roomy) continue;
    for (const JobRun& run : runs) untouched.emplace_back(run.out, run.count);
  }
  if (!untouched.empty()) fresh_ = std::make_unique<FreshPages>(std::move(untouched));
  const MutexLock lock(joining_);
  thread_ = start_needed_thread("read", [this] { read_all(); });
}

GroupReader::~GroupReader() { close(); }

// Whether the run is misaligned in memory as it is in the file.
bool GroupReader::lies_as_in_file(const JobRun& run) const {
  const Layout& layout = weights_->layout;
  const std::uint64_t offset = run.start - layout.segments[segment_of(layout, run.start)].first_row;
  const auto address = reinterpret_cast<std::uintptr_t>(run.out);
  return (address - offset) % weights_->engine->limits().alignment == 0;
}

void GroupReader::read_all() {
  std::exception_ptr failure;
  try {
    for (;;) {
      {
        MutexLock lock(mutex_);
        while (!cancelled_ && started_ == std::min(allowed_, groups_.size()) &&
               started_ < groups_.size()) {
          changed_.wait(mutex_);
        }
        if (cancelled_ || started_ == groups_.size()) break;
      }
      // Returns when nothing is in flight and no further group is allowed yet.
      weights_->engine->run(feed_);
    }
  } catch (...) {
    failure = std::current_exception();
  }
  const MutexLock lock(mutex_);
  failure_ = failure;
  ended_ = true;
  changed_.notify_all();
}

Job* GroupReader::next_job() {
  const MutexLock lock(mutex_);
  if (cancelled_ || started_ >= std::min(allowed_, groups_.size())) return nullptr;
  return &jobs_[started_++];
}

void GroupReader::job_done(Job& job) {
  require_unchanged(weights_->layout, *weights_->engine, job);
  const MutexLock lock(mutex_);
  done_[static_cast<std::size_t>(&job - jobs_.data())] = true;
  changed_.notify_all();
}

bool GroupReader::is_ready() const {
  return given_ == groups_.size() ? ended_ : done_[given_] || failure_ || cancelled_;
}

bool GroupReader::has_next() {
  const MutexLock lock(mutex_);
  return is_ready();
}

bool GroupReader::next() {
  MutexLock lock(mutex_);
  while (!is_ready()) changed_.wait(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  if (given_ == groups_.size()) return false;
  if (!done_[given_]) throw Error(ErrorKind::kClosed, "read", "reading was ended");
  ++given_;
  lock.unlock();
  note_work();
  return true;
}

void GroupReader::release() {
  const MutexLock lock(mutex_);
  ++allowed_;
  changed_.notify_all();
}

void GroupReader::close() {
  feed_.cancel();
  {
    const MutexLock lock(mutex_);
    cancelled_ = true;
    changed_.notify_all();
  }
  const MutexLock lock(joining_);
  if (fresh_) fresh_->stop();
  if (thread_.joinable()) thread_.join();
}

}  // namespace evenkeel
