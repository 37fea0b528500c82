// Text files of the kernel. They are not trusted: a process chooses its name, and a container
// chooses what is mounted at /proc.
#include "base/cgroup.h"
#include "base/text_file.h"
#include "fuzz/target.h"
#include "meter/children.h"
#include "meter/counters.h"
#include "meter/marks.h"
#include "meter/proc_maps.h"
#include "meter/process.h"

namespace evenkeel::fuzz {
namespace {

void check_lines(std::string_view text) {
  for (std::string_view line; take_line(text, line);) {
    MUST(line.find('\n') == line.npos);
    if (const auto mapped = parse_maps_line(line)) {
      MUST(unescape_newlines(mapped->path).size() <= mapped->path.size());
      covers({mapped->vma}, mapped->vma.range, mapped->vma);
    }
    if (const auto mark = parse_mark(line)) {
      MUST(mark->pid > 0 && mark->text.size() <= kMostMarkText);
      MUST(clean_mark_text(mark->text).view() == mark->text);
      for (const char c : mark->text) MUST(static_cast<unsigned char>(c) >= ' ' && c != 0x7F);
    }
  }
}

FUZZ_TARGET(proc) {
  const std::string_view text = input.rest();
  if (const auto stat = parse_stat(text)) MUST(stat->state != '\0' || text.find('\0') != text.npos);
  parse_status(text);
  parse_io(text);
  parse_newest_pid(text);
  number_after(text, "inactive_file");
  const CgroupPaths paths = parse_cgroup_paths(text);
  MUST(paths.v1.find('\n') == paths.v1.npos && paths.v2.find('\n') == paths.v2.npos);
  for (const CgroupMount& mount : parse_cgroup_mounts(text)) {
    MUST(mount.version == 1 || mount.version == 2);
  }
  check_lines(text);
}

}  // namespace
}  // namespace evenkeel::fuzz
