#include "cli/python_command.h"

#include <fmt/core.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "evenkeel/error.h"

namespace evenkeel::cli {
namespace {

constexpr char kProgram[] = R"(import sys
try:
    from {module} import main
except ImportError as error:
    sys.exit(f"evenkeel: {name} needs the Python package, which {{sys.executable}} cannot import: "
             f"{{error}}\nhint: install Evenkeel's wheel there (the evenkeel on PyPI is another "
             "project), or set EVENKEEL_PYTHON to a Python that has it")
sys.exit(main(sys.argv[1:]))
)";

// Rebuilds the arguments from the options that were given.
std::vector<std::string> words_again(const CLI::App& command) {
  std::vector<std::string> words, files;
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() == 0) continue;
    if (option->get_positional()) {
      files = option->results();
      continue;
    }
    const bool flag = option->get_items_expected_max() == 0;
    const std::string name = "--" + option->get_lnames().front();
    if (flag) words.push_back(name);
    if (!flag) words.push_back(name + "=" + option->results().front());
  }
  words.emplace_back("--");
  words.insert(words.end(), files.begin(), files.end());
  return words;
}

}  // namespace

void run_in_python(const CLI::App& command, const char* module) {
  const char* named = std::getenv("EVENKEEL_PYTHON");
  std::string program = named && *named ? named : "python3", code = "-c";
  std::string text =
      fmt::format(kProgram, fmt::arg("module", module), fmt::arg("name", command.get_name()));
  std::vector<std::string> rest = words_again(command);
  std::vector<char*> arguments = {program.data(), code.data(), text.data()};
  for (std::string& word : rest) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::execvp(program.c_str(), arguments.data());
  throw Error(ErrorKind::kSystem, command.get_name(),
              fmt::format("{} cannot be started: {}", program, std::strerror(errno)))
      .hint("install Python and Evenkeel's wheel, or set EVENKEEL_PYTHON to a Python that has it");
}

}  // namespace evenkeel::cli
