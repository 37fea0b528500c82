// evenkeel demo: creates a file and runs every engine on it, in about 15 seconds.
#include <fcntl.h>
#include <fmt/core.h>
#include <linux/magic.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/fd.h"
#include "cli/commands.h"
#include "cli/compare_report.h"
#include "cli/interrupt.h"
#include "cli/json_out.h"
#include "cli/memory_limit.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"

namespace evenkeel::cli {

inline constexpr std::uint64_t kDemoColumns = 162;

// The folder to write in: `wanted` if given, else the first of $TMPDIR, /var/tmp, the current
// folder and /tmp that is on a disk, may be written and has room; else one in memory. Throws an
// Error that says what each folder lacks.
std::string demo_folder(const std::string& wanted, std::uint64_t bytes);
bool lies_in_memory(const std::string& folder);  // tmpfs and the like

// The constructor writes and syncs the file, with a progress bar on stderr. The destructor removes
// it unless keep() was called.
class DemoFile {
 public:
  DemoFile(const std::string& folder, std::uint64_t rows);  // throws Error, Interrupted
  ~DemoFile();
  DemoFile(const DemoFile&) = delete;
  const std::string& path() const { return path_; }
  void keep() { kept_ = true; }

 private:
  void write(int fd, std::uint64_t rows);

  std::string path_;
  bool kept_ = false;
};

namespace {

constexpr std::uint64_t kToSpare = 64_MiB;  // leave some space free on the disk

std::vector<std::string> places() {
  std::vector<std::string> folders;
  if (const char* given = std::getenv("TMPDIR"); given && *given) folders.push_back(given);
  folders.push_back("/var/tmp");
  std::error_code ignored;
  folders.push_back(std::filesystem::current_path(ignored).string());
  folders.push_back("/tmp");
  return folders;
}

// Why the folder cannot be used; empty: it can.
std::string what_it_lacks(const std::string& folder, std::uint64_t bytes) {
  struct statvfs status;
  if (::statvfs(folder.c_str(), &status) != 0) return std::generic_category().message(errno);
  if (::access(folder.c_str(), W_OK | X_OK) != 0) return "is not writable";
  const std::uint64_t room = status.f_bavail * status.f_frsize;
  if (room >= bytes + kToSpare) return "";
  return fmt::format("has {} free, but {} + {} to spare are needed", format_size(room),
                     format_size(bytes), format_size(kToSpare));
}

// Numbers that a filesystem cannot compress or deduplicate: splitmix64, as floats in [0, 1).
void fill(std::vector<float>& values, std::uint64_t& state) {
  for (float& value : values) {
    std::uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    value = static_cast<float>((z ^ (z >> 31)) >> 40) * 0x1p-24f;
  }
}

void write_all(int fd, const char* data, std::size_t length, const std::string& path) {
  while (length > 0) {
    const ssize_t count = ::write(fd, data, length);
    check_interrupt();
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw Error::system("write", errno).in(path);
    data += count;
    length -= static_cast<std::size_t>(count);
  }
}

}  // namespace

bool lies_in_memory(const std::string& folder) {
  struct statfs status;
  if (::statfs(folder.c_str(), &status) != 0) return false;
  return status.f_type == TMPFS_MAGIC || status.f_type == RAMFS_MAGIC;
}

std::string demo_folder(const std::string& wanted, std::uint64_t bytes) {
  const auto folders = wanted.empty() ? places() : std::vector<std::string>{wanted};
  std::string in_memory, problems;
  for (const std::string& folder : folders) {
    const std::string lacks = what_it_lacks(folder, bytes);
    if (!lacks.empty()) {
      problems += fmt::format("{}{} {}", problems.empty() ? "" : "; ", folder, lacks);
    } else if (!lies_in_memory(folder)) {
      return folder;
    } else if (in_memory.empty()) {
      in_memory = folder;
    }
  }
  if (!in_memory.empty()) return in_memory;
  throw Error(ErrorKind::kInvalid, "demo", "no folder for the file: " + problems)
      .hint("choose a folder with --dir, or a smaller file with --size or --budget");
}

DemoFile::DemoFile(const std::string& folder, std::uint64_t rows) {
  path_ = folder + "/evenkeel-demo-XXXXXX.f32";
  const Fd fd(::mkostemps(path_.data(), 4, O_CLOEXEC));
  if (!fd) throw Error::system("create the demo file", errno).in(folder);
  try {
    write(fd.get(), rows);
  } catch (...) {
    ::unlink(path_.c_str());
    throw;
  }
}

DemoFile::~DemoFile() {
  if (!kept_) ::unlink(path_.c_str());
}

void DemoFile::write(int fd, std::uint64_t rows) {
  constexpr std::uint64_t kRowsAtOnce = 4096;
  std::vector<float> values(kRowsAtOnce * kDemoColumns);
  std::uint64_t state = 1;
  Progress progress;
  for (std::uint64_t row = 0; row < rows; row += kRowsAtOnce) {
    const std::uint64_t count = std::min(kRowsAtOnce, rows - row);
    fill(values, state);
    write_all(fd, reinterpret_cast<const char*>(values.data()),
              count * kDemoColumns * sizeof(float), path_);
    if (progress.due()) {
      progress.show(fmt::format("writing {}  {}", bar(double(row) / double(rows)), path_));
    }
  }
  progress.show("waiting for the disk");
  if (::fsync(fd) != 0) throw Error::system("sync", errno).in(path_);
}

namespace {

constexpr std::uint64_t kRowBytes = kDemoColumns * sizeof(float);
constexpr std::uint64_t kMostByDefault = 2_GiB, kLeast = 1_MiB;

struct Demo {
  std::uint64_t budget = 64_MiB;
  std::optional<std::uint64_t> size;   // empty: by the budget
  std::optional<std::uint64_t> limit;  // empty: four times the budget, if possible
  double seconds = 1;
  std::string folder;
  bool keep = false, json = false;
  PictureOptions pictures;

  std::uint64_t rows() const {
    return size.value_or(budget < kMostByDefault ? std::min(8 * budget, kMostByDefault)
                                                 : kMostByDefault) /
           kRowBytes;
  }
};

constexpr char kDemoFooter[] = R"(
Creates a file many times larger than the budget, reads random crops and shuffled rows of it with every
engine, cold, each in its own process, and shows speed and memory in a table and a picture. The file is
removed at the end.

Examples:
  evenkeel demo
  evenkeel demo --budget 256MiB --dir /data
  evenkeel demo --json > demo.json)";

// The page goes to the current folder, or to the temporary folder if that is not writable.
std::string page_path(const Demo& demo) {
  if (!demo.pictures.html.empty() || demo.json) return demo.pictures.html;
  std::string name = "evenkeel-demo.html";
  try {
    evenkeel::require_writable(name);
    return name;
  } catch (const Error&) {
    // In a folder that everyone may write, use a name that cannot be guessed.
    const auto elsewhere = fmt::format("evenkeel-demo-{:08x}.html", std::random_device()());
    return (std::filesystem::temp_directory_path() / elsewhere).string();
  }
}

// A file that fits in memory shows only one case: a mapping reads it once and is fast from then on.
// A memory limit like that of a cluster job shows the other case.
void set_limit(Demo& demo) {
  const bool asked_for = demo.limit.has_value();
  if (!asked_for) demo.limit = 4 * demo.budget;
  if (*demo.limit == 0) return;
  try {
    const MemoryLimit possible(*demo.limit);
  } catch (const Error&) {
    if (asked_for) throw;
    demo.limit = 0;
  }
}

std::string about_fitting(const CompareOutcome& outcome) {
  const EngineOutcome* map = outcome.find(EngineKind::kMap);
  if (!map || !read_once(*map)) return "";
  return "This file fits the memory of this machine, so map reads it once and is fast from then "
         "on. With data that does not fit, or in a job with a memory limit, map reads the disk "
         "again and again (run as root, this demo shows it). ";
}

void refuse_nonsense(const Demo& demo) {
  if (demo.rows() * kRowBytes + kRowBytes > kLeast) return;
  throw Error(ErrorKind::kInvalid, "demo",
              fmt::format("a file of {} is too small", format_size(demo.rows() * kRowBytes)))
      .hint(fmt::format("use --size {} or more, ideally 8 times the budget", format_size(kLeast)));
}

CompareSpec spec_of(const Demo& demo, const std::string& path, Pattern pattern) {
  CompareSpec spec;
  spec.paths = {path};
  spec.raw.dtype = "float32";
  spec.raw.shape = {-1, kDemoColumns};
  spec.pattern = pattern;
  spec.budget = demo.budget;
  spec.seconds = demo.seconds;
  spec.memory_limit = demo.limit.value_or(0);
  return spec;
}

void introduce(const Demo& demo, const std::string& folder) {
  const std::uint64_t bytes = demo.rows() * kRowBytes;
  say(stderr,
      fmt::format("{} of float32 rows in {}, read under a budget of {}, {:.0f} s in all\n\n",
                  format_size(bytes), folder, format_size(demo.budget), 12 * demo.seconds + 5));
  if (lies_in_memory(folder)) {
    note(folder + " is in memory, not on a disk: cold reads cannot be shown (try --dir)");
  }
  if (bytes <= demo.budget) note("the file fits the budget: there is little to see");
}

ProfileReport demo_picture(const CompareOutcome& outcome) {
  ProfileReport picture = to_picture(outcome);
  for (ProfileRun& run : picture.runs) run.files.clear();  // the file is removed by then
  return picture;
}

// SIGPIPE would leave the file of the demo behind: the end of a pipe is an interrupt instead.
void flush_or_end(std::FILE* out) {
  if (std::fflush(out) != 0 && errno == EPIPE) throw Interrupted{SIGPIPE};
}

int run(Demo& demo) {
  refuse_nonsense(demo);
  set_limit(demo);
  const PictureOptions pictures{page_path(demo), demo.pictures.svg};
  require_writable(pictures, demo.json);
  std::FILE* const out = where_tables_go(pictures);
  const InterruptGuard interrupts;
  const std::uint64_t bytes = demo.rows() * kRowBytes;
  const std::string folder = demo_folder(demo.folder, bytes);
  if (!demo.json) introduce(demo, folder);
  std::signal(SIGPIPE, SIG_IGN);
  DemoFile file(folder, demo.rows());
  if (demo.keep) file.keep();

  const auto engines = parse_engines("map,remap,advise,read,direct,auto");
  nlohmann::ordered_json runs = nlohmann::ordered_json::array();
  std::string complaints;
  std::vector<CompareOutcome> outcomes;
  for (const Pattern pattern : {Pattern::kRows, Pattern::kCrops}) {
    outcomes.push_back(
        run_compare(spec_of(demo, file.path(), pattern), engines, CacheState::kCold));
    if (const std::string one = complaint(outcomes.back()); !one.empty()) {
      complaints += fmt::format("{}{}", complaints.empty() ? "" : "\nevenkeel: ", one);
    }
    runs.push_back(to_report(outcomes.back()));
    if (!demo.json) say(out, fmt::format("{}\n", to_table(outcomes.back())));
    flush_or_end(out);
  }
  if (demo.json) {
    const nlohmann::ordered_json report = {{"file", file.path()},
                                           {"size_bytes", bytes},
                                           {"budget_bytes", demo.budget},
                                           {"runs", std::move(runs)}};
    print_json(report);
  } else {
    say(out, wrapped(about_fitting(outcomes.front()) + verdict(outcomes.front()), 0));
    flush_or_end(out);
  }
  write_pictures(pictures, demo_picture(outcomes.back()));
  if (!complaints.empty()) {
    std::fflush(stdout);
    say(stderr, fmt::format("evenkeel: {}\n", complaints));
    return 1;
  }
  if (demo.json) return 0;
  if (demo.keep) {
    next_command("evenkeel compare " + shell_word(file.path()) +
                     " --dtype float32 --shape -1,162 --pattern scan --cold",
                 "the third pattern, on the file that was kept");
  } else {
    next_command("evenkeel compare YOUR_FILE --cold", "the same on your own data");
  }
  return 0;
}

}  // namespace

void add_demo(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand("demo", "Try every engine on this machine, in a minute");
  auto demo = std::make_shared<Demo>();
  add_size(
      *command, "--budget", [demo](std::uint64_t bytes) { demo->budget = bytes; },
      "Memory that the data may occupy; default 64MiB");
  add_size(
      *command, "--size", [demo](std::uint64_t bytes) { demo->size = bytes; },
      "Size of the file; default 8 times the budget, at most 2GiB");
  add_size(
      *command, "--limit", [demo](std::uint64_t bytes) { demo->limit = bytes; },
      "Memory that each engine may use, page cache included; default 4 times the budget if a "
      "memory cgroup can be created; 0: no limit");
  command
      ->add_option("--dir", demo->folder,
                   "Folder for the file; default a temporary folder on a disk")
      ->type_name("DIR");
  add_seconds(*command, demo->seconds);
  command->add_flag("--keep", demo->keep, "Do not remove the file");
  command->add_flag("--json", demo->json, "Print the figures as JSON");
  add_picture_options(*command, demo->pictures,
                      "The page with the picture; default evenkeel-demo.html, none with --json");
  command->footer(kDemoFooter);
  command->callback([demo, &exit_code] { exit_code = run(*demo); });
}

}  // namespace evenkeel::cli
