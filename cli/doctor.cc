// evenkeel doctor: what this machine allows, and what Evenkeel does because of it.
#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/visible.h"
#include "cli/commands.h"
#include "cli/doctor_checks.h"
#include "cli/json_out.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "remote/address.h"

namespace evenkeel::cli {
namespace {

struct Doctor {
  std::string path;
  bool json = false;
};

constexpr char kDoctorFooter[] = R"(
Each line: ok, limited or missing; what Evenkeel does because of it; how to change it.

Examples:
  evenkeel doctor
  evenkeel doctor /data/train.bin
  evenkeel doctor s3://bucket/train.bin
  evenkeel doctor --json)";

std::string default_path() {
  return ::access(".", W_OK | X_OK) == 0 ? "." : std::filesystem::temp_directory_path().string();
}

void show(const std::vector<Check>& checks) {
  for (const Check& check : checks) {
    say(stdout, fmt::format("{:<8} {}: {}\n", health_name(check.health), check.name, check.found));
    say(stdout, wrapped(check.effect, 9));
    if (!check.change.empty()) say(stdout, wrapped("to change: " + check.change, 9));
  }
}

nlohmann::ordered_json to_json(const std::vector<Check>& checks) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Check& check : checks) {
    list.push_back({{"name", check.name},
                    {"state", health_name(check.health)},
                    {"found", check.found},
                    {"effect", check.effect},
                    {"change", check.change}});
  }
  return list;
}

int run(const Doctor& doctor) {
  const std::string path = doctor.path.empty() ? default_path() : doctor.path;
  const bool remote = is_url(path);
  const auto disk = remote ? check_remote(path) : check_disk(path);
  const auto system = check_system();
  if (doctor.json) {
    const nlohmann::ordered_json report = {{"path", without_query(path)},
                                           {"system", to_json(system)},
                                           {remote ? "server" : "disk", to_json(disk)}};
    print_json(report);
    return 0;
  }
  say(stdout, "This machine\n\n");
  show(system);
  say(stdout, fmt::format("\nThe {} {}\n\n", remote ? "server of" : "disk under", visible(path)));
  show(disk);
  next_command("evenkeel demo", "see what that means for memory and speed, in a minute");
  return 0;
}

}  // namespace

void add_doctor(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "doctor", "Show what this machine allows, and what Evenkeel does because of it");
  auto doctor = std::make_shared<Doctor>();
  command->add_option("PATH", doctor->path, "A file or folder on the disk to look at, or a URL")
      ->type_name("");
  command->add_flag("--json", doctor->json, "Print the facts as JSON");
  command->footer(kDoctorFooter);
  command->callback([doctor, &exit_code] { exit_code = run(*doctor); });
}

}  // namespace evenkeel::cli
