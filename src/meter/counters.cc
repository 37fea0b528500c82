#include "meter/counters.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/fd.h"
#include "base/number.h"
#include "base/text_file.h"
#include "evenkeel/error.h"
#include "evenkeel/meter.h"
#include "meter/proc.h"

namespace evenkeel {
namespace {

// Takes words separated by blanks from a text.
class Words {
 public:
  explicit Words(std::string_view text) : rest_(text) {}

  std::string_view next() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(' '), rest_.size()));
    const std::string_view word = rest_.substr(0, rest_.find(' '));
    rest_.remove_prefix(word.size());
    return word;
  }
  std::uint64_t number() {
    const std::string_view word = next();
    // Fields that may be negative, such as tpgid, are skipped by the caller.
    const auto value = parse_number<std::uint64_t>(word);
    failed_ |= !value;
    return value.value_or(0);
  }
  void skip(int words) {
    while (words-- > 0) next();
  }
  bool failed() const { return failed_; }

 private:
  std::string_view rest_;
  bool failed_ = false;
};

}  // namespace

std::optional<ProcessStat> parse_stat(std::string_view stat) {
  const std::size_t name_end =
      stat.rfind(')');  // the name may contain parentheses, the other fields do not
  if (name_end == std::string_view::npos) return std::nullopt;
  Words words(stat.substr(name_end + 1));
  ProcessStat out;
  const std::string_view state = words.next();
  if (state.size() != 1) return std::nullopt;
  out.state = state[0];
  out.parent = static_cast<pid_t>(words.number());
  words.skip(5);  // pgrp, session, tty_nr, tpgid, flags
  out.minor_faults = words.number();
  out.child_minor_faults = words.number();
  out.major_faults = words.number();
  out.child_major_faults = words.number();
  out.ticks = words.number();
  out.ticks += words.number();
  out.child_ticks = words.number();
  out.child_ticks += words.number();
  words.skip(2);  // priority, nice
  out.threads = words.number();
  if (words.failed()) return std::nullopt;
  return out;
}

double seconds_of_ticks(std::uint64_t ticks) {
  static const auto kPerSecond = static_cast<double>(::sysconf(_SC_CLK_TCK));
  return static_cast<double>(ticks) / kPerSecond;
}

ProcessCounters process_counters(pid_t pid) {
  ProcText text;
  const Fd file(open_proc(pid, "stat"));
  const auto stat = parse_stat(file ? read_again(file.get(), text) : "");
  if (!stat) {
    const int code = file || errno == ENOENT ? ESRCH : errno;
    throw Error::system("measure process", code, "process " + std::to_string(pid))
        .in(proc_path(pid, "stat"));
  }
  return {stat->major_faults, stat->minor_faults, seconds_of_ticks(stat->ticks),
          disk_bytes_read(pid)};
}

}  // namespace evenkeel
