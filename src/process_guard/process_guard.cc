#include "process_guard/process_guard.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <utility>

#include "base/fd.h"
#include "base/signals.h"
#include "evenkeel/error.h"
#include "meter/proc.h"

namespace evenkeel {
namespace {

constexpr std::chrono::milliseconds kAtLeast{2}, kAtMost{100};  // between two looks

// The file that a process has mapped, under the name it has there; -1 and errno when that leads
// elsewhere by now.
Fd open_mapped(const Seen& mapping, const std::string& path) {
  int error = ENOENT;
  for (const std::string& name : {path, proc_path(mapping.pid, "root") + path}) {
    // Should it be a pipe by now, opening does not wait for who writes.
    Fd fd(sys::open(name.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (!fd && errno != ENOENT) error = errno;
    struct stat status;
    if (fd && sys::fstat(fd.get(), &status) == 0 && status.st_dev == mapping.device &&
        status.st_ino == mapping.inode) {
      return fd;
    }
  }
  errno = error;
  return {};
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
                           std::unique_ptr<ProcessActivity> signs)
    : options_(options),
      source_(source),
      signs_(signs.get()),
      governor_({options.guard, true}, std::move(signs)) {
  const SignalsBlocked blocked;
  thread_ = std::thread([this] { run(); });
}

ProcessGuard::~ProcessGuard() {
  stopping_ = true;
  source_.interrupt();
  thread_.join();
}

GuardReport ProcessGuard::report() {
  GuardReport report = governor_.report();
  std::lock_guard lock(notes_mutex_);
  report.failures.insert(report.failures.end(), notes_.begin(), notes_.end());
  const auto more = source_.notes();
  report.failures.insert(report.failures.end(), more.begin(), more.end());
  return report;
}

void ProcessGuard::run() noexcept {
  while (!stopping_) {
    try {
      sync();
    } catch (const std::exception& error) {
      note(error.what());
    }
    if (!stopping_) std::this_thread::sleep_for(kAtLeast);  // changes that come in a row are one
    if (!stopping_) source_.wait(kAtMost);
  }
}

void ProcessGuard::sync() {
  const std::vector<Seen> seen = source_.look();
  std::map<std::uint64_t, std::uint64_t> there;
  std::set<pid_t> processes;
  for (const Seen& mapping : seen) {
    there[mapping.key] = mapping.generation;
    processes.insert(mapping.pid);
  }
  std::erase_if(known_, [&](const auto& one) {
    const auto place = there.find(one.first);
    if (place != there.end() && place->second == one.second) return false;
    governor_.remove(one.first);
    return true;
  });
  signs_->follow(processes);
  for (const Seen& mapping : seen) {
    if (known_.contains(mapping.key) || !wanted(mapping)) continue;
    known_[mapping.key] = mapping.generation;
    take(mapping);
  }
}

bool ProcessGuard::wanted(const Seen& mapping) {
  if (options_.files.empty()) return true;
  const auto [place, fresh] = wanted_.try_emplace(source_.path(mapping), false);
  if (fresh) place->second = matches(options_.files, place->first);
  return place->second;
}

void ProcessGuard::take(const Seen& mapping) {
  std::unique_ptr<GuardedMapping> held = source_.hold(mapping);
  if (governor_.add_known(held, mapping.device, mapping.inode)) return;
  const std::string path = source_.path(mapping);
  Fd fd = open_mapped(mapping, path);
  if (!fd) {
    note(path + " cannot be opened by the guard (" + std::strerror(errno) +
         "): its mappings are not governed");
    return;
  }
  governor_.add(std::move(held), std::move(fd), [&](GuardedFile& file) {
    file.set_name(path);
    file.on_switch([this, mapping](bool random) { source_.set_random(mapping, random); });
    ++files_;
  });
}

void ProcessGuard::note(const std::string& what) {
  constexpr std::size_t kMost = 64;
  std::lock_guard lock(notes_mutex_);
  if (notes_.size() < kMost && std::ranges::count(notes_, what) == 0) notes_.push_back(what);
}

}  // namespace evenkeel
