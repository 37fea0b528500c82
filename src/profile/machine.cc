#include "profile/machine.h"

#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <ctime>

#include "evenkeel/error.h"
#include "evenkeel/meter.h"

namespace evenkeel {

void describe_machine(ProfileReport& report, const std::string& path) {
  utsname name{};
  if (::uname(&name) == 0) report.kernel = std::string(name.sysname) + " " + name.release;
  const long cpus = ::sysconf(_SC_NPROCESSORS_ONLN);
  if (cpus > 0) report.cpus = static_cast<std::uint64_t>(cpus);
  struct sysinfo info {};
  if (::sysinfo(&info) == 0) report.memory = std::uint64_t{info.totalram} * info.mem_unit;
  try {
    report.readahead = readahead_bytes(path);
  } catch (const Error&) {
    report.readahead.reset();  // the file is gone, which must not make the report fail
  }
}

std::string utc(std::chrono::system_clock::time_point time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm parts{};
  char text[32];
  ::gmtime_r(&seconds, &parts);
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

}  // namespace evenkeel
