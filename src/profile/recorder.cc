#include "profile/recorder.h"

#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <utility>

#include "base/thread.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"
#include "profile/estimate.h"
#include "profile/machine.h"

namespace evenkeel {
namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t kLeastFile = 1 << 20;
// The time between two readings of counters and marks. Rates need no more, and marks have their own
// times.
constexpr milliseconds kCounting{50};
constexpr CostLimiter::Terms kFinding{
    .share = 0.0005, .advance = milliseconds(5), .least_between = milliseconds(50)};
constexpr CostLimiter::Terms kCaching{.share = 0.0025, .advance = milliseconds(20)};
// For one process the PSS is only shown. For several it is needed to find out what they share.
constexpr CostLimiter::Terms kPssAlone{
    .share = 0.0005, .advance = milliseconds(2), .least_between = milliseconds(100)};
constexpr CostLimiter::Terms kPssOfTree{
    .share = 0.005, .advance = milliseconds(40), .least_between = milliseconds(100)};

// Locales, fonts, certificates: most programs map them, but they are not data.
bool is_of_the_system(std::string_view path) {
  static constexpr std::string_view kFolders[] = {"/usr/",   "/lib/",    "/lib32/",
                                                  "/lib64/", "/libx32/", "/etc/",
                                                  "/bin/",   "/sbin/",   "/var/cache/"};
  return std::ranges::any_of(kFolders, [&](auto folder) { return path.starts_with(folder); });
}

std::vector<std::string> matches(const std::string& pattern) {
  int flags = GLOB_NOSORT | GLOB_TILDE;
#ifdef GLOB_BRACE  // not in musl
  flags |= GLOB_BRACE;
#endif
  glob_t found{};
  std::vector<std::string> paths;
  if (::glob(pattern.c_str(), flags, nullptr, &found) == 0) {
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  }
  ::globfree(&found);
  return paths;
}

// The kernel shows the open files of a process only to its user and to root. For a process that is
// just ending it shows them to nobody, but then nothing is hidden.
bool hides_files(pid_t process) {
  const std::string folder = "/proc/" + std::to_string(process);
  if (::access((folder + "/fd").c_str(), R_OK | X_OK) == 0 || errno != EACCES) return false;
  struct stat status;
  return ::stat(folder.c_str(), &status) == 0 && status.st_uid != ::geteuid();
}

double seconds_of(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

Recorder::Recorder(pid_t root, Options options)
    : options_(std::move(options)),
      tree_(root),
      watch_(options_.keep_files_open),
      finding_(kFinding, Clock::now()),
      caching_(kCaching, Clock::now()),
      pss_alone_(kPssAlone, Clock::now()),
      pss_of_tree_(kPssOfTree, Clock::now()) {
  find_files();
  start();
}

void Recorder::start() {
  started_ = Clock::now();
  started_at_ = std::chrono::system_clock::now();
  cpu_before_ = thread_cpu_time();
}

template <class Look>
void Recorder::look(CostLimiter& limiter, bool always, Look work) {
  const auto begin = Clock::now();
  if (!limiter.due(begin) && !always) return;
  // CPU time: waiting for a processor on a busy machine is no reason to look less often.
  const auto cpu_before = thread_cpu_time();
  work();
  const auto cost = thread_cpu_time() - cpu_before;
  limiter.took(begin, std::chrono::duration_cast<Clock::duration>(cost));
}

void Recorder::watch(const std::string& path) {
  if (unwatched_.contains(path)) return;
  // A file is found some time after the program began to read it. Bytes that were read since the
  // start and do not belong to another file are taken to be its pages.
  const std::uint64_t just_read = latest_.disk_read - std::min(latest_.disk_read, read_of_files_);
  try {
    read_of_files_ += watch_.add(path, just_read);
  } catch (const Error& error) {
    unwatched_[path] = error.what();
  }
}

void Recorder::find_files() {
  for (const std::string& pattern : options_.files) {
    for (const std::string& path : matches(pattern)) watch(path);
  }
  if (!options_.files.empty()) return;
  for (const pid_t process : tree_.processes()) {
    files_hidden_ |= hides_files(process);
    for (const FileInUse& file : files_in_use(process, kLeastFile)) {
      if (!is_of_the_system(file.path)) watch(file.path);
    }
  }
}

void Recorder::read_cache(bool always) {
  if (watch_.files().empty()) {
    latest_.cache = files_hidden_ ? ProfileSample::kUnknown : 0;
    latest_.cache_measured = true;
    return;
  }
  look(caching_, always, [&] {
    latest_.cache = watch_.cached_above_before().value_or(ProfileSample::kUnknown);
    latest_.cache_measured = true;
  });
}

void Recorder::read_marks() {
  if (!options_.marks) return;
  for (Mark& mark : options_.marks->read_new()) {
    const auto at = Clock::time_point(std::chrono::nanoseconds(mark.nanoseconds));
    marks_.push_back({std::max(0.0, seconds_of(at - started_)), std::move(mark.text)});
  }
}

bool Recorder::sample() { return sample(false); }
bool Recorder::sample_all() { return sample(true); }

bool Recorder::sample(bool always) {
  const auto now = Clock::now();
  latest_.seconds = seconds_of(now - started_);
  latest_.cache_measured = latest_.pss_measured = false;
  if (always || now >= counting_due_) {
    counting_due_ = now + kCounting;
    sample_tree();
    read_marks();
  } else {
    resident_ = tree_.sample_resident();
  }
  if (living_) {
    look(finding_, always, [&] { find_files(); });
    read_sharing(always);
    take_memory();
  }
  read_cache(always);
  series_.add(latest_);
  return living_;
}

void Recorder::read_sharing(bool always) {
  const bool several = tree_.processes().size() > 1;
  look(several ? pss_of_tree_ : pss_alone_, always, [&] {
    const auto pss = tree_.pss();
    latest_.pss = pss.value_or(ProfileSample::kUnknown);
    latest_.pss_measured = true;
    sharing_hidden_ |= several && !pss;
  });
}

void Recorder::take_memory() {
  const ProcessMemory distinct = tree_.distinct();
  latest_.anon = distinct.anon;
  latest_.file = distinct.file;
  latest_.shmem = distinct.shmem;
  latest_.duplicate = resident_.rss() - std::min(resident_.rss(), distinct.rss());
  latest_.page_tables = resident_.page_tables;
  latest_.swap = resident_.swap;
}

// After the tree has ended, the last values seen are kept; its counters are then final.
void Recorder::sample_tree() {
  const auto tree = tree_.sample();
  living_ = tree.has_value();
  if (tree) {
    resident_ = tree->memory;
    latest_.processes = tree->processes;
    unmeasured_ = std::max(unmeasured_, tree->unmeasured);
  }
  const ProcessCounters counters = tree_.counters();
  latest_.disk_read = counters.disk_read.value_or(0);
  latest_.major_faults = counters.major_faults;
  latest_.minor_faults = counters.minor_faults;
  latest_.cpu_seconds = counters.cpu_seconds;
  disk_unknown_ |= !counters.disk_read.has_value();
}

void Recorder::add_notes(ProfileRun& run) const {
  std::size_t unknown = 0;
  for (const FileWatch::File& file : watch_.files()) unknown += !file.cached_before.has_value();
  if (unknown > 0) {
    run.notes.push_back("The page cache of " + std::to_string(unknown) + " of " +
                        std::to_string(watch_.files().size()) +
                        " files is not known: the kernel reports it only for files that you own "
                        "or may write to.");
  }
  if (!unwatched_.empty()) {
    run.notes.push_back(std::to_string(unwatched_.size()) +
                        " files could not be watched, the first: " + unwatched_.begin()->second);
  }
  if (files_hidden_) {
    run.notes.push_back(
        "Which files it has open or mapped is not known: the kernel shows that only for your own "
        "processes. Name files to watch them.");
  } else if (watch_.files().empty()) {
    run.notes.push_back(
        options_.files.empty()
            ? "No data file of 1 MiB or more was seen open or mapped; name files to watch them."
            : "No file matched the patterns of files to watch.");
  }
  if (disk_unknown_) {
    run.notes.push_back(
        "Bytes read from disk are not known: the kernel reports them only for your own "
        "processes.");
  }
  if (sharing_hidden_) {
    run.notes.push_back(
        "Pages that several processes share count for each of them: the kernel reports shared "
        "pages only for your own processes.");
  }
  if (unmeasured_ > 0) {
    run.notes.push_back("At least " + std::to_string(unmeasured_) +
                        " processes were not measured: too few file descriptors.");
  }
  if (options_.marks && options_.marks->dropped() > 0) {
    run.notes.push_back(with_commas(options_.marks->dropped()) +
                        " marks were left out beyond the " + with_commas(MarkFile::kMost) +
                        " that are kept.");
  }
}

ProfileRun Recorder::finish() {
  read_marks();
  ProfileRun run;
  run.started = utc(started_at_);
  run.seconds = latest_.seconds;
  run.interval_seconds = std::chrono::duration<double>(options_.interval).count();
  run.own_cpu_seconds = (thread_cpu_time() - cpu_before_).count();
  for (const FileWatch::File& file : watch_.files()) {
    run.files.push_back({file.path, file.size, file.cached_before});
  }
  run.marks = std::move(marks_);
  run.samples = series_.take();
  estimate_between(run.samples);
  add_notes(run);
  return run;
}

}  // namespace evenkeel
