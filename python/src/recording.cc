#include "src/recording.h"

#include <unistd.h>

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

#include "base/mutex.h"
#include "base/thread.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"
#include "meter/marks.h"
#include "profile/machine.h"
#include "profile/recorder.h"
#include "profile/verdict.h"

namespace evenkeel::python {

class Recording::Thread {
 public:
  Thread(std::chrono::nanoseconds interval, std::vector<std::string> files);
  ~Thread() {
    if (thread_.joinable()) end();
  }
  void mark(std::string_view text);
  ProfileRun stop();

 private:
  using Clock = std::chrono::steady_clock;
  void record(const std::vector<std::string>& files);
  void end();

  const std::chrono::nanoseconds interval_;
  Mutex mutex_;
  CondVar changed_;
  bool begun_ GUARDED_BY(mutex_) = false;   // set by the thread once it records
  bool ending_ GUARDED_BY(mutex_) = false;  // set by end(): the thread takes a last sample
  std::exception_ptr failure_ GUARDED_BY(mutex_);
  Clock::time_point started_ GUARDED_BY(mutex_);
  std::vector<ProfileMark> marks_ GUARDED_BY(mutex_);
  std::uint64_t marks_left_out_ GUARDED_BY(mutex_) = 0;
  ProfileRun run_ GUARDED_BY(mutex_);
  std::thread thread_;
};

Recording::Thread::Thread(std::chrono::nanoseconds interval, std::vector<std::string> files)
    : interval_(interval) {
  thread_ = start_needed_thread("profile", [this, files = std::move(files)] { record(files); });
  MutexLock lock(mutex_);
  while (!begun_ && !failure_) changed_.wait(mutex_);
  if (!failure_) return;
  const std::exception_ptr failure = failure_;
  lock.unlock();
  thread_.join();
  std::rethrow_exception(failure);
}

// The recorder counts the processor time of its own thread, so it is used only here.
void Recording::Thread::record(const std::vector<std::string>& files) {
  try {
    Recorder recorder(0, {.interval = interval_, .files = files});
    recorder.start();
    MutexLock lock(mutex_);
    started_ = Clock::now();
    begun_ = true;
    changed_.notify_all();
    for (auto next = started_; !ending_;) {
      lock.unlock();
      recorder.sample();
      lock.lock();
      next = std::max(next + interval_, Clock::now());  // a late sample is not made up for
      while (!ending_ && changed_.wait_until(mutex_, next)) {
      }
    }
    lock.unlock();
    recorder.sample_all();
    ProfileRun run = recorder.finish();
    lock.lock();
    run_ = std::move(run);
  } catch (...) {
    const MutexLock lock(mutex_);
    failure_ = std::current_exception();
    changed_.notify_all();
  }
}

void Recording::Thread::mark(std::string_view text) {
  const MarkText clean = clean_mark_text(text);
  const MutexLock lock(mutex_);
  if (marks_.size() == MarkFile::kMost) {
    ++marks_left_out_;
    return;
  }
  const std::chrono::duration<double> since = Clock::now() - started_;
  marks_.push_back({since.count(), std::string(clean.view())});
}

void Recording::Thread::end() {
  {
    const MutexLock lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

ProfileRun Recording::Thread::stop() {
  end();
  const MutexLock lock(mutex_);
  if (failure_) std::rethrow_exception(failure_);
  run_.marks = std::move(marks_);
  if (marks_left_out_ > 0) {
    run_.notes.push_back(with_commas(marks_left_out_) + " marks were left out beyond the " +
                         with_commas(MarkFile::kMost) + " that are kept.");
  }
  return std::move(run_);
}

Recording::Recording(std::chrono::nanoseconds interval, std::vector<std::string> files)
    : owner_(::getpid()), thread_(std::make_unique<Thread>(interval, std::move(files))) {}

Recording::~Recording() {
  // A child of fork does not have this thread, and the objects that it waited on cannot be
  // destroyed without it, so they are leaked.
  if (!owned_here()) static_cast<void>(thread_.release());
}

bool Recording::owned_here() const { return owner_ == ::getpid(); }

void Recording::mark(std::string_view text) {
  if (owned_here() && thread_) thread_->mark(text);
}

ProfileRun Recording::stop() {
  if (!owned_here() || !thread_) {
    throw Error(ErrorKind::kClosed, "profile", "nothing is being recorded here")
        .hint("a recording belongs to the process that started it, and can be ended once");
  }
  return std::exchange(thread_, nullptr)->stop();
}

ProfileReport report_of(ProfileRun run, std::optional<std::uint64_t> budget) {
  const ProfileSummary summary = summarize(run, budget);
  ProfileReport report;
  report.title = run.name;
  report.budget = budget;
  report.subtitle = memory_verdict(summary, budget);
  describe_machine(report, run.files.empty() ? "." : run.files.front().path);
  report.runs.push_back(std::move(run));
  return report;
}

}  // namespace evenkeel::python
