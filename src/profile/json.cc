#include <cmath>

#include "evenkeel/profile.h"
#include "evenkeel/version.h"
#include "profile/json_text.h"
#include "profile/sample_fields.h"
#include "profile/verdict.h"

namespace evenkeel {
namespace {

using MaybeBytes = std::optional<std::uint64_t>;

void put(JsonText& json, std::string_view key, std::string_view value) {
  json.key(key).text(value);
}

void put_whole(JsonText& json, std::string_view key, const MaybeBytes& value) {
  json.key(key);
  if (value && *value != ProfileSample::kUnknown) {
    json.whole(*value);
  } else {
    json.null();
  }
}

// Samples are timed less exactly than microseconds.
void seconds(JsonText& json, double value) { json.real(std::round(value * 1e6) / 1e6); }

void put_seconds(JsonText& json, std::string_view key, double value) {
  seconds(json.key(key), value);
}

void put_real(JsonText& json, std::string_view key, const std::optional<double>& value) {
  json.key(key);
  if (value) {
    json.real(*value);
  } else {
    json.null();
  }
}

void put_machine(JsonText& json, const ProfileReport& report) {
  json.key("machine").open('{');
  put(json, "kernel", report.kernel);
  put_whole(json, "cpus", report.cpus);
  put_whole(json, "memory_bytes", report.memory);
  put_whole(json, "readahead_bytes", report.readahead);
  json.close('}');
}

void put_peaks(JsonText& json, const ProfileSummary& summary) {
  json.key("peak_bytes").open('{');
  put_whole(json, "anon", summary.peak_anon);
  put_whole(json, "file", summary.peak_file);
  put_whole(json, "shmem", summary.peak_shmem);
  put_whole(json, "rss", summary.peak_rss);
  put_whole(json, "memory", summary.peak_memory);
  put_whole(json, "unreclaimable", summary.peak_unreclaimable);
  put_whole(json, "page_tables", summary.peak_page_tables);
  put_whole(json, "swap", summary.peak_swap);
  put_whole(json, "cache", summary.peak_cache);
  put_whole(json, "pss", summary.peak_pss);
  json.close('}');
}

void put_limits(JsonText& json, const ProfileSummary& summary) {
  json.key("limits").open('[');
  for (const LimitVerdict& limit : limits_of(summary)) {
    json.open('{');
    put(json, "name", limit.name);
    put(json, "examples", limit.examples);
    put_whole(json, "bytes", limit.bytes);
    put(json, "effect", limit.effect);
    json.close('}');
  }
  json.close(']');
}

void put_summary(JsonText& json, const ProfileSummary& summary) {
  json.key("summary").open('{');
  put_peaks(json, summary);
  json.key("slope_bytes_per_minute").open('{');
  put_real(json, "rss", summary.slope_rss);
  put_real(json, "anon", summary.slope_anon);
  put_real(json, "memory", summary.slope_memory);
  json.close('}');
  put(json, "trend", summary.trend);
  put_whole(json, "file_at_peak_bytes", summary.file_at_peak);
  put_limits(json, summary);
  put_seconds(json, "seconds_over_budget", summary.seconds_over_budget);
  put_whole(json, "disk_read_bytes", summary.disk_read);
  put_whole(json, "major_faults", summary.major_faults);
  put_whole(json, "minor_faults", summary.minor_faults);
  put_seconds(json, "cpu_seconds", summary.cpu_seconds);
  put_whole(json, "most_processes", summary.most_processes);
  json.close('}');
}

// Writes one array for each kind of number, which takes a third of the space of one object per
// sample.
template <typename Put>
void put_column(JsonText& json, std::string_view key, const ProfileRun& run, Put put_one) {
  json.key(key).open('[');
  for (const ProfileSample& sample : run.samples) put_one(sample);
  json.close(']');
}

void put_column(JsonText& json, const SampleField& field, const ProfileRun& run) {
  put_column(json, field.name, run, [&](const ProfileSample& sample) {
    const std::uint64_t value = sample.*field.value;
    value == ProfileSample::kUnknown ? json.null() : json.whole(value);
  });
}

void put_samples(JsonText& json, const ProfileRun& run) {
  json.key("samples").open('{');
  put_column(json, "seconds", run, [&](const ProfileSample& s) { seconds(json, s.seconds); });
  for (const SampleField& field : kSampleSizes) put_column(json, field, run);
  for (const SampleField& field : kSampleCounters) put_column(json, field, run);
  for (const SampleFlag& flag : kSampleFlags) {
    put_column(json, flag.name, run, [&](const ProfileSample& s) { json.whole(s.*flag.value); });
  }
  put_column(json, "cpu_seconds", run,
             [&](const ProfileSample& s) { seconds(json, s.cpu_seconds); });
  put_column(json, "processes", run, [&](const ProfileSample& s) { json.whole(s.processes); });
  json.close('}');
}

void put_texts(JsonText& json, std::string_view key, const std::vector<std::string>& texts) {
  json.key(key).open('[');
  for (const std::string& text : texts) json.text(text);
  json.close(']');
}

void put_files_and_marks(JsonText& json, const ProfileRun& run) {
  json.key("files").open('[');
  for (const ProfileFile& file : run.files) {
    json.open('{');
    put(json, "path", file.path);
    put_whole(json, "size_bytes", file.size);
    put_whole(json, "cached_before_bytes", file.cached_before);
    json.close('}');
  }
  json.close(']').key("marks").open('[');
  for (const ProfileMark& mark : run.marks) {
    json.open('{');
    put_seconds(json, "seconds", mark.seconds);
    put(json, "text", mark.text);
    json.close('}');
  }
  json.close(']');
}

void put_run(JsonText& json, const ProfileRun& run, const MaybeBytes& budget) {
  json.open('{');
  put(json, "name", run.name);
  put_texts(json, "command", run.command);
  put(json, "started", run.started);
  put_seconds(json, "seconds", run.seconds);
  put_seconds(json, "interval_seconds", run.interval_seconds);
  put(json, "ended", run.ended);
  put_seconds(json, "own_cpu_seconds", run.own_cpu_seconds);
  put_texts(json, "notes", run.notes);
  json.key("facts").open('{');
  for (const auto& [name, value] : run.facts) put(json, name, value);
  json.close('}');
  put_whole(json, "guarded_peak_bytes", run.guarded_peak);
  put_files_and_marks(json, run);
  put_summary(json, summarize(run, budget));
  put_samples(json, run);
  json.close('}');
}

}  // namespace

std::string to_json(const ProfileReport& report) {
  JsonText json;
  json.open('{');
  put(json, "evenkeel", EVENKEEL_VERSION);
  put(json, "title", report.title);
  put(json, "subtitle", report.subtitle);
  json.key("growth").flag(report.growth);
  put_whole(json, "budget_bytes", report.budget);
  put_machine(json, report);
  json.key("runs").open('[');
  for (const ProfileRun& run : report.runs) put_run(json, run, report.budget);
  json.close(']').close('}');
  return json.take() + "\n";
}

}  // namespace evenkeel
