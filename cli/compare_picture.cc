#include "cli/compare_picture.h"

#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <filesystem>

#include "base/visible.h"
#include "cli/compare_report.h"
#include "cli/describe.h"
#include "cli/profile_outputs.h"
#include "cli/terminal.h"
#include "evenkeel/bytes.h"
#include "profile/machine.h"

namespace evenkeel::cli {
namespace {

const char* headline(Pattern pattern) {
  return pattern == Pattern::kCrops  ? "Random crops"
         : pattern == Pattern::kRows ? "Shuffled rows"
                                     : "A scan";
}

std::uint64_t size_of(const std::string& path) {
  std::error_code gone;
  const auto size = std::filesystem::file_size(path, gone);
  return gone ? 0 : size;
}

std::string conditions(const CompareOutcome& outcome) {
  std::string text = outcome.cache == CacheState::kCold ? " Cold" : "";
  if (const std::uint64_t limit = outcome.spec.memory_limit) {
    text += fmt::format("{} inside a memory limit of {}", text.empty() ? " All" : ", each",
                        format_size(limit));
  }
  return text.empty() ? "" : text + ".";
}

ProfileRun run_of(const CompareOutcome& outcome, const EngineOutcome& engine) {
  ProfileRun run;
  run.name = engine_name(engine.engine);
  run.interval_seconds = std::chrono::duration<double>(MemoryWatch::kInterval).count();
  run.samples = engine.samples;
  run.started = engine.started;
  run.own_cpu_seconds = engine.watching_cpu_seconds;
  run.seconds = run.samples.empty() ? 0 : run.samples.back().seconds;
  for (const std::string& path : outcome.spec.paths) {
    run.files.push_back({path, size_of(path), std::nullopt});
  }
  if (!engine.error.empty()) {
    run.ended = "failed";
    run.notes.push_back(run.name + " failed: " + engine.error);
    return run;
  }
  run.ended = "worked";
  run.facts.emplace_back(item_name(outcome.spec.pattern) + "/s",
                         describe_rate(engine.per_second()));
  if (engine.work.disk_bytes) {
    run.facts.emplace_back("read", format_size(*engine.work.disk_bytes));
  }
  return run;
}

}  // namespace

ProfileReport to_picture(const CompareOutcome& outcome) {
  ProfileReport report;
  std::uint64_t size = 0;
  for (const std::string& path : outcome.spec.paths) size += size_of(path);
  report.title = fmt::format("{} from {} under a budget of {}", headline(outcome.spec.pattern),
                             format_size(size), format_size(outcome.spec.budget));
  report.subtitle = verdict(outcome) + conditions(outcome);
  report.growth = true;
  report.budget = outcome.spec.budget;
  describe_machine(report, outcome.spec.paths.front());
  for (const EngineOutcome& engine : outcome.engines) {
    report.runs.push_back(run_of(outcome, engine));
  }
  return report;
}

void add_picture_options(CLI::App& command, PictureOptions& options, const std::string& html_help) {
  command.add_option("-o,--output", options.html, html_help)->type_name("FILE");
  command.add_option("--svg", options.svg, "The same as a picture for papers and READMEs")
      ->type_name("FILE");
}

void require_writable(const PictureOptions& options) {
  for (const std::string& path : {options.html, options.svg}) {
    if (!path.empty()) require_writable_output(path);
  }
}

void write_pictures(const PictureOptions& options, const ProfileReport& picture) {
  const auto write = [](const std::string& path, const std::string& text) {
    write_output(path, text);
    if (path != "-") say(stderr, fmt::format("picture: {}\n", visible(path)));
  };
  if (!options.html.empty()) write(options.html, to_html(picture));
  if (!options.svg.empty()) write(options.svg, to_svg(picture));
}

}  // namespace evenkeel::cli
