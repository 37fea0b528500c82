#include "meter/process.h"

#include <cerrno>
#include <string>

#include "base/text_file.h"
#include "evenkeel/error.h"
#include "meter/proc.h"

namespace evenkeel {

std::optional<ProcessMemory> parse_status(std::string_view status) {
  struct Field {
    std::string_view name;
    std::uint64_t ProcessMemory::*value;
  };
  static constexpr Field kFields[] = {
      {"RssAnon", &ProcessMemory::anon},   {"RssFile", &ProcessMemory::file},
      {"RssShmem", &ProcessMemory::shmem}, {"VmPTE", &ProcessMemory::page_tables},
      {"VmSwap", &ProcessMemory::swap},    {"VmHWM", &ProcessMemory::peak_rss},
  };
  ProcessMemory memory;
  bool resident = false;
  std::string_view line;
  while (take_line(status, line)) {
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) continue;
    for (const Field& field : kFields) {
      if (line.substr(0, colon) != field.name) continue;
      const auto kib = leading_number(line.substr(colon + 1));
      if (kib) memory.*field.value = *kib * 1024;
      resident |= kib && field.name == "RssAnon";
      break;
    }
  }
  if (!resident) return std::nullopt;
  return memory;
}

std::optional<ProcessPss> parse_smaps_rollup(std::string_view rollup) {
  static constexpr std::array<std::string_view, kResidentKinds.size()> kNames = {
      "Pss_Anon:", "Pss_File:", "Pss_Shmem:"};
  const auto total = number_after(rollup, "Pss:");
  if (!total) return std::nullopt;
  ProcessPss pss;
  pss.total = *total * 1024;
  pss.resident = number_after(rollup, "Rss:").value_or(0) * 1024;
  pss.resident_anon = number_after(rollup, "Anonymous:").value_or(0) * 1024;
  pss.kinds_known = true;
  for (std::size_t kind = 0; kind < kNames.size(); ++kind) {
    const auto kib = number_after(rollup, kNames[kind]);
    pss.kinds_known &= kib.has_value();
    pss.kinds[kind] = kib.value_or(0) * 1024;
  }
  return pss;
}

std::optional<ProcessPss> read_pss(pid_t pid) {
  const auto rollup = read_text_file(proc_path(pid, "smaps_rollup"));
  if (!rollup) return std::nullopt;
  errno = 0;
  return parse_smaps_rollup(*rollup);
}

std::optional<std::uint64_t> process_pss(pid_t pid) {
  const auto pss = read_pss(pid);
  if (!pss) return std::nullopt;
  return pss->total;
}

std::optional<std::uint64_t> parse_io(std::string_view io) {
  return number_after(io, "read_bytes:");
}

ProcessMeter::ProcessMeter(pid_t pid) : status_(open_proc(pid, "status")) {
  if (status_) return;
  const int code = errno == ENOENT ? ESRCH : errno;
  throw Error::system("measure process", code, "process " + std::to_string(pid))
      .in(proc_path(pid, "status"));
}

std::optional<ProcessMemory> ProcessMeter::sample() const {
  ProcText text;
  return parse_status(read_again(status_.get(), text));
}

ProcessMemory process_memory(pid_t pid) {
  return ProcessMeter(pid).sample().value_or(ProcessMemory{});
}

std::optional<std::uint64_t> disk_bytes_read(pid_t pid) {
  const auto io = read_text_file(proc_path(pid, "io"));
  if (!io) return std::nullopt;
  return parse_io(*io);
}

}  // namespace evenkeel
