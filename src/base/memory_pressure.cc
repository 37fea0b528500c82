#include "base/memory_pressure.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "base/available_memory.h"
#include "base/sys.h"
#include "base/text_file.h"

namespace evenkeel {
namespace {

// "some avg10=0.00 avg60=0.00 avg300=0.00 total=24968528"
std::uint64_t stalled_in(std::string_view text) {
  std::string_view line;
  while (take_line(text, line)) {
    const std::size_t total = line.find("total=");
    if (line.starts_with("some ") && total != std::string_view::npos) {
      return leading_number(line.substr(total + 6)).value_or(0);
    }
  }
  return 0;
}

std::uint64_t stalled_of(const std::string& path) {
  return stalled_in(read_text_file(path).value_or(""));
}

}  // namespace

MemoryPressure::MemoryPressure(std::string root)
    : root_(std::move(root)), folders_(memory_cgroup_folders(root_)) {
  for (const CgroupFolder& folder : folders_) {  // the process's own cgroup is first
    if (folder.version != 2 || !read_text_file(folder.directory + "/memory.pressure")) continue;
    own_cgroup_ = &folder;
    break;
  }
}

std::string MemoryPressure::stall_file() const {
  return own_cgroup_ ? own_cgroup_->directory + "/memory.pressure"
                     : root_ + "/proc/pressure/memory";
}

MemoryState MemoryPressure::read() const {
  MemoryState state;
  const std::string meminfo = read_text_file(root_ + "/proc/meminfo").value_or("");
  state.total = number_after(meminfo, "MemTotal:").value_or(0) * 1024;
  state.available = number_after(meminfo, "MemAvailable:").value_or(0) * 1024;
  if (state.total == 0) state.total = state.available = available_memory_below(root_).bytes;
  state.stalled_us = stalled_of(stall_file());
  state.stalls_are_own = own_cgroup_ != nullptr;
  for (const CgroupFolder& folder : folders_) {
    const CgroupMemory level = memory_of(folder);
    if (level.has_limit() && level.headroom() < state.available) {
      state.available = level.headroom();
      state.total = level.limit;
    }
    if (folder.version == 1) {
      const auto hits = read_text_file(folder.directory + "/memory.failcnt");
      state.limit_hits += leading_number(hits.value_or("")).value_or(0);
      continue;
    }
    const std::string events = read_text_file(folder.directory + "/memory.events").value_or("");
    state.limit_hits += number_after(events, "high").value_or(0);
    state.limit_hits += number_after(events, "max").value_or(0);
  }
  return state;
}

std::vector<Fd> MemoryPressure::open_triggers() const {
  // 20 ms of stalls within a second. Unprivileged users may only set windows of 2 s.
  constexpr std::array<std::string_view, 2> kTriggers = {"some 20000 1000000",
                                                         "some 40000 2000000"};
  std::vector<Fd> triggers;
  const std::string path = stall_file();
  for (const std::string_view trigger : kTriggers) {
    Fd fd(sys::open(path.c_str(), O_RDWR | O_NONBLOCK));
    if (!fd) break;
    // Includes the terminating zero, because /proc/pressure overwrites the last byte with one.
    if (::write(fd.get(), trigger.data(), trigger.size() + 1) < 0) continue;
    triggers.push_back(std::move(fd));
    break;
  }
  return triggers;
}

}  // namespace evenkeel
