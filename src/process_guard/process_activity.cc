#include "process_guard/process_activity.h"

#include "base/sys.h"
#include "base/text_file.h"
#include "meter/counters.h"
#include "meter/proc.h"

namespace evenkeel {

ProcessActivity::One::One(pid_t pid)
    : stat(open_proc(pid, "stat")),
      io(open_proc(pid, "io")),
      statm(open_proc(pid, "statm")),
      last(read()) {}

Activity ProcessActivity::One::read() const {
  ProcText text;
  Activity signs;
  if (const auto counts = parse_stat(read_again(stat.get(), text))) {
    signs.major_faults = counts->major_faults;
    signs.faults = counts->major_faults + counts->minor_faults;
  }
  signs.read_bytes = number_after(read_again(io.get(), text), "read_bytes:").value_or(0);
  const auto shared = parse_statm_shared(read_again(statm.get(), text));
  signs.mapped = shared.value_or(0) * sys::page_size();
  return signs;
}

bool ProcessActivity::One::ended() const {
  ProcText text;
  const auto counts = parse_stat(read_again(stat.get(), text));
  return !counts || counts->zombie();
}

void ProcessActivity::follow(const std::set<pid_t>& processes) {
  std::lock_guard lock(mutex_);
  // Before others are added: one of them may have the number of an ended one.
  for (auto place = processes_.begin(); place != processes_.end();) {
    if (!place->second.ended()) {
      ++place;
      continue;
    }
    add_up(place->second);
    place = processes_.erase(place);
  }
  for (const pid_t pid : processes) processes_.try_emplace(pid, pid);
}

void ProcessActivity::add_up(One& one) {
  const Activity now = one.read();
  sum_.major_faults += growth(one.last.major_faults, now.major_faults);
  sum_.faults += growth(one.last.faults, now.faults);
  sum_.read_bytes += growth(one.last.read_bytes, now.read_bytes);
  sum_.mapped += now.mapped;
  one.last = now;
}

Activity ProcessActivity::read() {
  std::lock_guard lock(mutex_);
  sum_.mapped = 0;
  for (auto& [pid, one] : processes_) add_up(one);
  return sum_;
}

}  // namespace evenkeel
