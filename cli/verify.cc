// evenkeel verify: checks whether files have changed.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/describe.h"
#include "cli/json_out.h"
#include "cli/options.h"
#include "cli/prepare_options.h"
#include "cli/terminal.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"

namespace evenkeel::cli {
namespace {

struct VerifyWords {
  std::vector<std::string> files;
  WorkBudget budget;
  bool write = false, json = false;
};

constexpr char kVerifyFooter[] = R"(
Checksums are in FILE.xxh3: 64-bit XXH3 of each MiB. Writers make them while they write
(`checksums=True`, `--checksums`); --write computes them for a file as it is now. The exit code is 1 if
a file is bad.

Examples:
  evenkeel verify features.npy
  evenkeel verify --write 'fineweb_train_*.bin'
  evenkeel verify 'fineweb_train_*.bin' --json)";

int run(const VerifyWords& words) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  bool good = true;
  std::vector<std::string> paths = expand_all(words.files);
  std::erase_if(paths, [](const std::string& path) { return path.ends_with(".xxh3"); });
  if (paths.empty()) {
    throw Error(ErrorKind::kInvalid, "verify", "this file holds checksums")
        .in(words.files.front())
        .hint("name the file that they are of, without .xxh3");
  }
  for (const std::string& path : paths) {
    VerifyReport report;
    double seconds = 0;
    {
      WorkView view;
      const VerifyOptions options{.budget = words.budget.budget(), .progress = view.callback()};
      report = words.write ? write_checksums(path, options) : verify(path, options);
      seconds = view.seconds();
    }
    good = good && report.problem.empty();
    if (words.json) {
      nlohmann::ordered_json json = {{"file", path},
                                     {"good", report.problem.empty()},
                                     {"bytes", report.bytes},
                                     {"blocks", report.blocks},
                                     {"bad_blocks", report.bad_blocks},
                                     {"seconds", seconds}};
      if (report.first_bad) {
        json["first_bad"] = {{"begin", report.first_bad->begin}, {"end", report.first_bad->end}};
      }
      if (!report.problem.empty()) json["problem"] = report.problem;
      all.push_back(std::move(json));
      continue;
    }
    say(stdout,
        fmt::format("{}: {}\n", path,
                    !report.problem.empty() ? "BAD: " + report.problem
                    : words.write
                        ? counted(report.blocks, "checksum") + " written"
                        : fmt::format("good, {}, {}/s", format_size(report.bytes),
                                      format_size(static_cast<std::uint64_t>(
                                          double(report.bytes) / std::max(seconds, 1e-3))))));
  }
  if (words.json) print_json(all);
  return good ? 0 : 1;
}

}  // namespace

void add_verify(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "verify", "Check whether files have changed since their checksums were written");
  auto words = std::make_shared<VerifyWords>();
  add_files(*command, words->files);
  command->add_flag("--write", words->write, "Compute checksums instead, and write FILE.xxh3");
  add_work_budget(*command, words->budget);
  command->add_flag("--json", words->json, "Print the result as JSON");
  command->footer(kVerifyFooter);
  command->callback([words, &exit_code] { exit_code = run(*words); });
}

}  // namespace evenkeel::cli
