#include "src/interruptible.h"

#include <unistd.h>

#include <exception>
#include <map>
#include <system_error>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/per_process.h"
#include "base/thread.h"
#include "evenkeel/error.h"

#ifdef Py_LIMITED_API
// Every CPython since 3.4 exports it, but the headers of the stable ABI do not declare it.
extern "C" int PyGILState_Check(void);
#endif

namespace evenkeel::python {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

// References that must be released with the GIL. Never destroyed: threads may outlive `main`.
struct Released {
  Mutex mutex;
  std::vector<std::function<void()>> releases GUARDED_BY(mutex);

  static Released& list() {
    static auto* const list = new Released;
    return *list;
  }
  void add(std::function<void()> release) {
    MutexLock lock(mutex);
    releases.push_back(std::move(release));
  }
  void release_all() {
    std::vector<std::function<void()>> now;
    {
      MutexLock lock(mutex);
      now.swap(releases);
    }
    for (const auto& release : now) release();
  }
};

// One call of `work` on a worker.
class Task {
 public:
  explicit Task(std::function<void()> work) : work_(std::move(work)) {}

  void run() {
    std::exception_ptr error;
    try {
      work_();
    } catch (...) {
      error = std::current_exception();
    }
    work_ = nullptr;  // destroys what it owns here, where waiting for a disk does no harm
    MutexLock lock(mutex_);
    error_ = error;
    done_ = true;
    ended_.notify_all();
  }
  bool wait_for(std::chrono::milliseconds most) {
    const auto deadline = Clock::now() + most;
    MutexLock lock(mutex_);
    while (!done_) {
      if (!ended_.wait_until(mutex_, deadline)) return done_;
    }
    return true;
  }
  void rethrow() {
    MutexLock lock(mutex_);
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::function<void()> work_;
  Mutex mutex_;
  CondVar ended_;
  bool done_ GUARDED_BY(mutex_) = false;
  std::exception_ptr error_ GUARDED_BY(mutex_);
};

// Runs tasks on a thread, one after another, until `end` is called. The thread also owns this
// object.
class Worker : public std::enable_shared_from_this<Worker> {
 public:
  // Throws std::system_error if no thread can be started.
  static std::shared_ptr<Worker> start() {
    auto worker = std::make_shared<Worker>();
    start_thread([worker] { worker->loop(); }).detach();
    return worker;
  }
  void submit(std::shared_ptr<Task> task) {
    MutexLock lock(mutex_);
    task_ = std::move(task);
    changed_.notify_one();
  }
  void end_after_task() {
    MutexLock lock(mutex_);
    ending_ = true;
    changed_.notify_one();
  }

 private:
  void loop() {
    MutexLock lock(mutex_);
    for (;;) {
      while (!task_ && !ending_) changed_.wait(mutex_);
      if (!task_) return;
      auto task = std::move(task_);
      task_ = nullptr;
      lock.unlock();
      task->run();
      task.reset();
      lock.lock();
    }
  }

  Mutex mutex_;
  CondVar changed_;
  std::shared_ptr<Task> task_ GUARDED_BY(mutex_);
  bool ending_ GUARDED_BY(mutex_) = false;
};

// The worker of the last call, kept for the next one. The GIL guards it. A child of fork has none.
struct IdleWorker {
  std::shared_ptr<Worker> worker;
  pid_t owner = 0;

  static IdleWorker& here() {
    static auto* const idle = new IdleWorker;
    return *idle;
  }
  std::shared_ptr<Worker> take() {
    if (worker && owner != ::getpid()) new std::shared_ptr<Worker>(std::move(worker));  // lost
    if (worker) return std::exchange(worker, nullptr);
    return Worker::start();
  }
  void put(std::shared_ptr<Worker> used) {
    if (worker) return used->end_after_task();
    worker = std::move(used);
    owner = ::getpid();
  }
};

struct AtExit {
  std::map<const void*, Close> readers;  // the GIL guards it
  static AtExit& list() {
    static auto* const list = new AtExit;
    return *list;
  }
};

void run_here(const std::function<void()>& work) {
  const WithoutGil without;
  work();
}

}  // namespace

void release_with_gil(std::function<void()> release) {
  if (PyGILState_Check()) {
    release();
  } else {
    Released::list().add(std::move(release));
  }
}

void run_interruptible(std::function<void()> work) {
  Released::list().release_all();
  if (!WithoutGil::on_main_thread()) return run_here(work);
  std::shared_ptr<Worker> worker;
  try {
    worker = IdleWorker::here().take();
  } catch (const std::system_error&) {
    return run_here(work);
  }
  const auto task = std::make_shared<Task>(std::move(work));
  const std::uint64_t generation = ForkGeneration::now();
  worker->submit(task);
  try {
    const WithoutGil without;
    while (!task->wait_for(kSignalInterval)) {
      without.check_signals();
      if (generation == ForkGeneration::now()) continue;
      throw Error(ErrorKind::kClosed, "fork",
                  "a signal handler forked during this call, which goes on in the parent alone")
          .hint("call it again in the child");
    }
  } catch (...) {
    // A child has no such thread, which may have held the mutex.
    if (generation == ForkGeneration::now()) worker->end_after_task();
    throw;
  }
  IdleWorker::here().put(std::move(worker));
  task->rethrow();
}

namespace {

// Work in the background that did not end at once. A child of fork has no thread that does it.
struct LateWork {
  std::shared_ptr<Task> task;
  std::uint64_t generation;
};
// With the GIL.
std::vector<LateWork>& late_work() {
  static auto* const list = new std::vector<LateWork>;
  return *list;
}

}  // namespace

bool wait_for_background() {
  const std::vector<LateWork> late = std::exchange(late_work(), {});
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  const bool main = WithoutGil::on_main_thread();
  bool any = false;
  const WithoutGil without;
  for (const LateWork& one : late) {
    if (one.generation != ForkGeneration::now()) continue;
    any = true;
    while (!one.task->wait_for(kSignalInterval) && std::chrono::steady_clock::now() < deadline) {
      if (!main) continue;
      without.check_signals();
      if (one.generation != ForkGeneration::now()) return any;  // a handler forked
    }
  }
  return any;
}

void run_in_background(std::function<void()> work) noexcept {
  try {
    std::shared_ptr<Worker> worker;
    try {
      worker = IdleWorker::here().take();
    } catch (const std::system_error&) {
      return run_here(work);
    }
    const auto task = std::make_shared<Task>(std::move(work));
    worker->submit(task);
    bool done;
    {
      const WithoutGil without;
      done = task->wait_for(kSignalInterval);
    }
    if (done) {
      IdleWorker::here().put(std::move(worker));
    } else {
      worker->end_after_task();
      const std::uint64_t now = ForkGeneration::now();
      std::erase_if(late_work(), [&](const LateWork& late) {
        return late.generation != now || late.task->wait_for({});
      });
      late_work().push_back({task, now});
    }
  } catch (...) {  // no memory for the task: the work was destroyed with all that it owns
  }
}

void close_at_exit(const void* reader, Close close) {
  AtExit::list().readers[reader] = std::move(close);
}

void forget_at_exit(const void* reader) noexcept { AtExit::list().readers.erase(reader); }

// From here on, only this thread returns to Python, so no other thread sees the closed readers.
// All readers together get one second. Threads that still wait for the disk then are left behind.
void interpreter_ends() {
  WithoutGil::interpreter_ends();
  const auto readers = std::exchange(AtExit::list().readers, {});
  const WithoutGil without;
  const auto deadline = Clock::now() + 1s;
  for (const auto& [reader, close] : readers) close(deadline);
}

}  // namespace evenkeel::python
