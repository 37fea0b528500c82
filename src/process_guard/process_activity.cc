#include "process_guard/process_activity.h"

#include <cerrno>
#include <utility>

#include "base/sys.h"
#include "base/text_file.h"
#include "meter/counters.h"
#include "meter/proc.h"

namespace evenkeel {

ProcessActivity::One::One(pid_t pid)
    : stat(open_proc(pid, "stat")),
      io(open_proc(pid, "io")),
      statm(open_proc(pid, "statm")),
      no_descriptors((!stat || !io || !statm) && (errno == EMFILE || errno == ENFILE)),
      last(read()) {}

Activity ProcessActivity::One::read() const {
  ProcText text;
  Activity activity;
  if (const auto counts = parse_stat(read_again(stat.get(), text))) {
    activity.major_faults = counts->major_faults;
    activity.faults = counts->major_faults + counts->minor_faults;
  }
  activity.read_bytes = number_after(read_again(io.get(), text), "read_bytes:").value_or(0);
  const auto shared = parse_statm_shared(read_again(statm.get(), text));
  activity.mapped = shared.value_or(0) * sys::page_size();
  return activity;
}

bool ProcessActivity::One::ended() const {
  ProcText text;
  const auto counts = parse_stat(read_again(stat.get(), text));
  return !counts || counts->zombie();
}

std::size_t ProcessActivity::follow(const std::set<pid_t>& processes) {
  MutexLock lock(mutex_);
  // Remove ended processes first: a new process may have the PID of one of them.
  for (auto place = processes_.begin(); place != processes_.end();) {
    if (!place->second.ended()) {
      ++place;
      continue;
    }
    add_up(place->second);
    place = processes_.erase(place);
  }
  std::size_t unread = 0;
  for (const pid_t pid : processes) {
    if (processes_.contains(pid)) continue;
    One one(pid);
    if (one.no_descriptors) {
      ++unread;  // tried again next time
    } else {
      processes_.emplace(pid, std::move(one));
    }
  }
  return unread;
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
  MutexLock lock(mutex_);
  sum_.mapped = 0;
  for (auto& [pid, one] : processes_) add_up(one);
  return sum_;
}

}  // namespace evenkeel
