#include "weights/group_reader.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/thread.h"
#include "evenkeel/error.h"

namespace evenkeel {
namespace {

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
         groups.size() * (sizeof(ReadGroup) + sizeof(Job));
}

}  // namespace

GroupReader::GroupReader(std::shared_ptr<Weights::Impl> weights, std::vector<ReadGroup> groups,
                         std::size_t ahead)
    : weights_(std::move(weights)),
      groups_(std::move(groups)),
      share_(weights_->budget.reserve(group_memory(weights_->budget, groups_), "plans")),
      jobs_(groups_.size()),
      feed_(weights_->layout, *weights_->engine, *this, std::nullopt, weights_->budget.limit()),
      allowed_(std::max<std::size_t>(ahead, 1)),
      done_(groups_.size()) {
  for (std::size_t i = 0; i < groups_.size(); ++i) {
    jobs_[i].runs = groups_[i].runs;
    jobs_[i].roomy = groups_[i].roomy;
  }
  const MutexLock lock(joining_);
  thread_ = start_thread([this] { read_all(); });
}

GroupReader::~GroupReader() { close(); }

void GroupReader::read_all() {
  try {
    for (;;) {
      {
        MutexLock lock(mutex_);
        while (!cancelled_ && started_ == std::min(allowed_, groups_.size()) &&
               started_ < groups_.size()) {
          changed_.wait(mutex_);
        }
        if (cancelled_ || started_ == groups_.size()) return;
      }
      // Ends when nothing is in flight and no group may begin.
      weights_->engine->run(feed_);
    }
  } catch (...) {
    const MutexLock lock(mutex_);
    failure_ = std::current_exception();
    changed_.notify_all();
  }
}

Job* GroupReader::next_job() {
  const MutexLock lock(mutex_);
  if (cancelled_ || started_ >= std::min(allowed_, groups_.size())) return nullptr;
  return &jobs_[started_++];
}

void GroupReader::job_done(Job& job) {
  const MutexLock lock(mutex_);
  done_[static_cast<std::size_t>(&job - jobs_.data())] = true;
  changed_.notify_all();
}

bool GroupReader::next() {
  MutexLock lock(mutex_);
  if (given_ == groups_.size()) return false;
  while (!done_[given_] && !failure_ && !cancelled_) changed_.wait(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  if (!done_[given_]) throw Error(ErrorKind::kClosed, "read", "reading was ended");
  ++given_;
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
  if (thread_.joinable()) thread_.join();
}

}  // namespace evenkeel
