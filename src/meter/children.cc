#include "meter/children.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "base/text_file.h"
#include "meter/counters.h"
#include "meter/proc.h"

namespace evenkeel {

Children::Way Children::best_way(const std::string& root) {
  const std::string own = root + "/proc/thread-self/children";
  return ::access(own.c_str(), R_OK) == 0 ? Way::kAsk : Way::kScan;
}

Children::Children(Way way, std::string root) : way_(way), proc_(std::move(root) + "/proc/") {}

void Children::refresh() {
  if (way_ == Way::kAsk) return;
  scanned_.clear();
  for (const pid_t pid : numbered_entries(proc_)) {
    const auto text = read_text_file(proc_ + std::to_string(pid) + "/stat");
    if (!text) continue;  // ended in the meantime
    if (const auto stat = parse_stat(*text)) scanned_[stat->parent].push_back(pid);
  }
}

std::vector<pid_t> Children::of(pid_t pid) const {
  std::vector<pid_t> children;
  if (way_ == Way::kScan) {
    const auto found = scanned_.find(pid);
    return found == scanned_.end() ? children : found->second;
  }
  const std::string tasks = proc_ + std::to_string(pid) + "/task/";
  for (const pid_t thread : numbered_entries(tasks)) {
    const auto text = read_text_file(tasks + std::to_string(thread) + "/children");
    std::string_view rest = text ? std::string_view(*text) : "";
    while (const auto child = leading_number(rest)) {
      children.push_back(static_cast<pid_t>(*child));
      rest.remove_prefix(std::min(rest.find(' '), rest.size() - 1) + 1);
    }
  }
  return children;
}

std::optional<std::uint64_t> parse_newest_pid(std::string_view loadavg) {
  const std::size_t blank = loadavg.rfind(' ');
  if (blank == std::string_view::npos) return std::nullopt;
  return leading_number(loadavg.substr(blank + 1));
}

LookTimer::LookTimer(const std::string& root)
    : loadavg_(::open((root + "/proc/loadavg").c_str(), O_RDONLY | O_CLOEXEC)) {}

bool LookTimer::due(Clock::time_point now) {
  if (now < not_before_) return false;
  ProcText text;
  const auto newest = parse_newest_pid(loadavg_ ? read_again(loadavg_.get(), text) : "");
  if (newest && newest == newest_ && now < regular_) return false;
  newest_ = newest;  // read before the look: processes created during it are for the next one
  return true;
}

void LookTimer::looked(Clock::time_point began, Clock::time_point ended) {
  not_before_ = ended + kPart * (ended - began);
  regular_ = ended + kAtLeastEvery;
}

}  // namespace evenkeel
