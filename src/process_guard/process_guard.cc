#include "process_guard/process_guard.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <utility>

#include "base/fd.h"
#include "base/sys.h"
#include "base/thread.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"
#include "meter/proc.h"

namespace evenkeel {
namespace {

// Limits of the time between two calls of sync(), which may take at most a fifth of a processor.
constexpr std::chrono::milliseconds kAtLeast{2}, kAtMost{100};
constexpr int kShare = 4;
constexpr std::chrono::seconds kBetweenRetries{1};

Fd open_same(const ObservedMapping& mapping, const std::string& path) {
  // If the path is a pipe by now, opening must not wait for a writer.
  Fd fd(sys::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (!fd) return fd;
  struct stat status;
  if (sys::fstat(fd.get(), &status) == 0 && status.st_dev == mapping.device &&
      status.st_ino == mapping.inode) {
    return fd;
  }
  errno = ENOENT;
  return {};
}

// Opens the file that a process has mapped: by its path, then by its path below the process's root,
// then, for deleted files, through the process's own descriptor. Returns an empty Fd and sets errno
// if all of these fail.
Fd open_mapped(const ObservedMapping& mapping, const std::string& path) {
  std::vector<std::string> places{path, proc_path(mapping.pid, "root") + path};
  if (mapping.descriptor) {
    places.push_back(proc_path(mapping.pid, "fd/") + std::to_string(*mapping.descriptor));
  }
  int error = ENOENT;
  for (const std::string& place : places) {
    if (Fd fd = open_same(mapping, place)) return fd;
    if (errno != ENOENT) error = errno;
  }
  errno = error;
  return {};
}

bool too_many_open(int error) { return error == EMFILE || error == ENFILE; }

// Returns for example "Too many open files; 1,024 are allowed, see ulimit -Hn".
std::string open_error(int error) {
  std::string text = std::strerror(error);
  rlimit limit{};
  if (error == EMFILE && ::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    text += "; " + with_commas(limit.rlim_cur) + " are allowed, see ulimit -Hn";
  }
  return text;
}

}  // namespace

bool matches(const std::vector<std::string>& patterns, const std::string& path) {
  if (patterns.empty()) return true;
  const std::string name = path.substr(path.rfind('/') + 1);
  return std::ranges::any_of(patterns, [&](const std::string& pattern) {
    if (pattern.find('/') == std::string::npos) {
      return ::fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
    }
    std::error_code none;
    const std::string whole =
        (std::filesystem::current_path(none) / pattern).lexically_normal().string();
    return ::fnmatch(whole.c_str(), path.c_str(), 0) == 0;
  });
}

ProcessGuard::ProcessGuard(const ProcessGuardOptions& options, MappingSource& source)
    : ProcessGuard(options, source, std::make_unique<ProcessActivity>()) {}

ProcessGuard::ProcessGuard(const ProcessGuardOptions& options, MappingSource& source,
                           std::unique_ptr<ProcessActivity> activity)
    : options_(options),
      source_(source),
      activity_(activity.get()),
      evictor_({options.guard, true}, std::move(activity)) {
  thread_ = start_needed_thread("guard", [this] { run(); });
}

ProcessGuard::~ProcessGuard() {
  stopping_ = true;
  source_.interrupt();
  thread_.join();
}

GuardReport ProcessGuard::report() {
  GuardReport report = evictor_.report();
  MutexLock lock(mutex_);
  report.failures.insert(report.failures.end(), notes_.begin(), notes_.end());
  const auto more = source_.notes();
  report.failures.insert(report.failures.end(), more.begin(), more.end());
  return report;
}

void ProcessGuard::run() noexcept {
  ask_for_short_slices();
  while (!stopping_) {
    const auto begin = thread_cpu_time();
    try {
      sync();
    } catch (const std::exception& error) {
      note(error.what(), error.what());
    }
    // Wait a little, so that changes that follow each other closely are processed together.
    const auto pause = std::max<Clock::duration>(
        kAtLeast,
        std::chrono::duration_cast<Clock::duration>(kShare * (thread_cpu_time() - begin)));
    if (!stopping_) std::this_thread::sleep_for(std::min<Clock::duration>(pause, kAtMost));
    if (!stopping_) source_.wait(kAtMost);
  }
}

void ProcessGuard::sync() {
  const std::vector<ObservedMapping> observed = source_.observe();
  std::map<std::uint64_t, std::uint64_t> there;
  std::set<pid_t> processes;
  for (const ObservedMapping& mapping : observed) {
    there[mapping.key] = mapping.generation;
    processes.insert(mapping.pid);
  }
  std::erase_if(known_, [&](const auto& one) {
    const auto place = there.find(one.first);
    if (place != there.end() && place->second == one.second) return false;
    evictor_.remove(one.first);
    return true;
  });
  if (const std::size_t unread = activity_->follow(processes); unread != 0) {
    note("activity", "the activity of " + with_commas(unread) + " processes cannot be read (" +
                         open_error(EMFILE) + "): the budget may be exceeded");
  }
  for (const ObservedMapping& mapping : observed) {
    if (known_.contains(mapping.key) || !wanted(mapping)) continue;
    if (add(mapping)) known_[mapping.key] = mapping.generation;
  }
  source_.acted_upon();
  for (const std::string& what : source_.notes()) {
    // The reason after the colon is the kind. The count before it may grow.
    const std::string kind = what.substr(std::min(what.find(':'), what.size()));
    if (announced_.insert(kind).second && options_.on_note) {
      options_.on_note(what);
    }
  }
}

bool ProcessGuard::wanted(const ObservedMapping& mapping) {
  if (options_.files.empty()) return true;
  const auto [place, fresh] = wanted_.try_emplace(source_.path(mapping), false);
  if (fresh) place->second = matches(options_.files, place->first);
  return place->second;
}

bool ProcessGuard::add(const ObservedMapping& mapping) {
  std::unique_ptr<GuardedMapping> guarded = source_.make_guarded(mapping, true);
  if (evictor_.add_known(guarded, mapping.device, mapping.inode)) return true;
  if (Clock::now() < retry_at_) return false;
  const std::string path = source_.path(mapping);
  const auto prepare = [&](GuardedFile& file) {
    file.set_name(path);
    file.on_switch([this, mapping](bool random) { source_.set_random(mapping, random); });
    file.reopen_by([mapping, path] { return open_mapped(mapping, path); });
    ++files_;
  };
  Fd fd = open_mapped(mapping, path);
  if (!fd) {
    const int error = errno;
    if (!guarded->still_there()) return true;  // unmapped in the meantime
    if (error == ENOENT && mapping.descriptor) {
      evictor_.add(source_.make_guarded(mapping, false), {}, prepare);
      return true;
    }
    note(std::strerror(error), path + " cannot be opened by the guard (" + open_error(error) +
                                   "): its mappings are not guarded");
    if (!too_many_open(error)) return true;
    retry_at_ = Clock::now() + kBetweenRetries;
    return false;
  }
  evictor_.add(std::move(guarded), std::move(fd), prepare);
  return true;
}

void ProcessGuard::note(const std::string& kind, const std::string& what) {
  constexpr std::size_t kMost = 64;
  {
    MutexLock lock(mutex_);
    if (std::ranges::count(notes_, what) != 0) return;
    if (notes_.size() < kMost) notes_.push_back(what);
  }
  if (announced_.insert(kind).second && options_.on_note) options_.on_note(what);
}

}  // namespace evenkeel
