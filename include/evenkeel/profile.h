// Memory over time: recorded samples of a program, and reports and pictures made from them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "evenkeel/compiler.h"

#pragma GCC visibility push(default)

namespace evenkeel {

// One sample of a process tree. Sizes in bytes. Counters start with the recording and cover all
// processes that were ever seen, ended ones included.
struct ProfileSample {
  static constexpr std::uint64_t kUnknown = std::numeric_limits<std::uint64_t>::max();

  double seconds = 0;      // since the start
  std::uint64_t anon = 0;  // RssAnon, RssFile, RssShmem of the tree: pages that several processes
  std::uint64_t file = 0;  // map count once
  std::uint64_t shmem = 0;
  std::uint64_t duplicate = 0;     // what the sum of all RSS counts more than once
  std::uint64_t cache = kUnknown;  // page cache of the watched files, above what was there before
  std::uint64_t pss = kUnknown;    // shared pages divided among the processes that share them
  // Whether the value was measured in this sample. Between two measurements, values are estimated:
  // they follow the mapped pages and stay between the two measured values.
  bool cache_measured = false, pss_measured = false;
  std::uint64_t page_tables = 0;
  std::uint64_t swap = 0;
  std::uint64_t disk_read = 0;     // counter, bytes read from storage
  std::uint64_t major_faults = 0;  // counter
  std::uint64_t minor_faults = 0;  // counter
  double cpu_seconds = 0;          // counter, user and system
  std::uint32_t processes = 0;

  std::uint64_t rss() const { return anon + file + shmem + duplicate; }  // summed over processes
  // What the program occupies, with no page counted twice: anon + shmem + the larger of the mapped
  // file pages and the page cache it filled. A mapped page is in both.
  std::uint64_t memory() const;
};

struct ProfileMark {
  double seconds = 0;
  std::string text;
};

struct ProfileFile {
  std::string path;
  std::uint64_t size = 0;
  std::optional<std::uint64_t> cached_before;  // empty: the kernel does not report it
};

// The recording of one program.
struct ProfileRun {
  std::string name;                  // a short title: "python train.py", "direct"
  std::vector<std::string> command;  // program and arguments, if it was a command
  std::string started;               // "2026-11-15T11:20:00Z"
  double seconds = 0;
  double interval_seconds = 0;     // between two samples, as requested
  std::string ended;               // "exit code 0", "killed by signal 9 (SIGKILL)", "still running"
  double own_cpu_seconds = 0;      // what the recording itself cost
  std::vector<std::string> notes;  // shown to the reader: "page cache unknown: ..."
  // Shown with the run: {"rows/s", "295,210"}.
  std::vector<std::pair<std::string, std::string>> facts;
  // For a run under `evenkeel guard`: GuardReport::guarded_peak of its files. The budget covers
  // those files, not the whole program, and is compared with this.
  std::optional<std::uint64_t> guarded_peak;
  std::vector<ProfileFile> files;
  std::vector<ProfileMark> marks;
  std::vector<ProfileSample> samples;  // ordered by time; at most ProfileSeries::kMost
};

// The content of a page or a picture: one run, or several side by side on equal axes.
struct ProfileReport {
  std::string title;
  std::string subtitle;                 // one sentence; for several runs, the conclusion
  bool growth = false;                  // samples are growth above a baseline, not totals
  std::optional<std::uint64_t> budget;  // drawn as a line; memory above it is shaded
  std::string kernel;                   // "Linux 6.18.0"
  std::uint64_t cpus = 0, memory = 0;   // of the machine, bytes
  std::optional<std::uint64_t> readahead;
  std::vector<ProfileRun> runs;
};

// Peaks and slopes of a run.
struct ProfileSummary {
  std::uint64_t peak_anon = 0, peak_file = 0, peak_shmem = 0, peak_rss = 0, peak_memory = 0;
  // anon + shmem + page tables: what the kernel cannot reclaim except by swapping it out.
  std::uint64_t peak_unreclaimable = 0;
  std::uint64_t file_at_peak = 0;  // pages of files in peak_memory: the kernel can reclaim them
  std::uint64_t peak_page_tables = 0, peak_swap = 0;
  std::optional<std::uint64_t> peak_cache, peak_pss;
  // Bytes per minute, over the second half of the run: the median of the slopes between samples
  // (Theil-Sen), so that a sawtooth is flat and one spike does not matter. Empty for runs that are
  // too short (under 1 s, or fewer than 16 samples).
  std::optional<double> slope_rss, slope_anon, slope_memory;
  std::string trend;               // of memory: "climbed 1.9 GiB in the first 2 s, then flat"
  double seconds_over_budget = 0;  // 0 for guarded runs
  std::uint64_t disk_read = 0, major_faults = 0, minor_faults = 0;
  double cpu_seconds = 0;
  std::uint32_t most_processes = 0;
};
ProfileSummary summarize(const ProfileRun& run, std::optional<std::uint64_t> budget);

std::string to_json(const ProfileReport& report);  // the format is in docs/profile.md
std::string to_html(const ProfileReport& report);  // one file that loads nothing from the network
std::string to_svg(const ProfileReport& report);   // for papers and READMEs
std::string to_csv(const ProfileRun& run);

// Writes a file completely or not at all: to a temporary file beside it, which is then renamed. If
// that is not possible, it writes directly: to pipes, devices, /dev/stdout, or a writable file in a
// folder that is not writable. Throws Error (kSystem).
void write_report(const std::string& path, const std::string& text);
// Throws what write_report would throw, as far as that is known beforehand. Writes nothing.
void require_writable(const std::string& path);

// Keeps the samples of a run of any length in bounded memory: when there are kMost, neighbours are
// merged. A merged sample has the larger size of each kind and the later counters and time, so no
// peak is lost. If one kind shrank while another grew, a sum of merged sizes is larger than the
// real sum ever was; it is never smaller.
class ProfileSeries {
 public:
  static constexpr std::size_t kMost = 8192;
  void add(const ProfileSample& sample);
  const std::vector<ProfileSample>& samples() const { return samples_; }
  std::vector<ProfileSample> take();  // leaves the series empty

 private:
  std::vector<ProfileSample> samples_;
  std::size_t together_ = 1;  // how many added samples one stored sample represents
  std::size_t in_last_ = 0;   // how many of them are in the last stored sample so far
};

}  // namespace evenkeel

#pragma GCC visibility pop
