#include "cli/options.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <map>

#include "base/number.h"
#include "cli/terminal.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"
#include "format/layout.h"

namespace evenkeel::cli {

std::chrono::nanoseconds parse_interval(const std::string& text) {
  static const std::map<std::string, double> kUnits = {{"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};
  const std::size_t digits = std::min(text.find_first_not_of("0123456789.eE+-"), text.size());
  const auto number = parse_number<double>(std::string_view(text).substr(0, digits));
  const auto unit = kUnits.find(text.substr(digits));
  if (!number || unit == kUnits.end()) {
    throw Error(ErrorKind::kInvalid, "interval", fmt::format("\"{}\" is not a time", text))
        .hint("write it like 10ms, 0.5s or 500us");
  }
  const double nanoseconds = *number * unit->second;
  if (!(nanoseconds >= 1e5 && nanoseconds <= 3.6e12)) {
    throw Error(ErrorKind::kInvalid, "interval",
                fmt::format("{} is not between 100us and 3600s", text));
  }
  return std::chrono::nanoseconds(static_cast<std::int64_t>(nanoseconds));
}

double parse_seconds(const std::string& text) {
  const auto seconds = parse_number<double>(text);
  if (seconds && *seconds > 0 && *seconds <= 1e8) return *seconds;
  throw Error(ErrorKind::kInvalid, "seconds",
              fmt::format("\"{}\" is not a number above 0 and at most 100,000,000", text));
}

pid_t parse_pid(const std::string& text) {
  const auto pid = parse_number<pid_t>(text);
  if (pid && *pid > 0) return *pid;
  throw Error(ErrorKind::kInvalid, "process", fmt::format("\"{}\" is not a process ID", text))
      .hint("`pgrep -f NAME` finds it");
}

double parse_slope(const std::string& text) {
  static const std::map<std::string, double> kPerMinute = {{"s", 60}, {"min", 1}, {"h", 1.0 / 60}};
  const std::size_t slash = text.find('/');
  const auto unit =
      slash == std::string::npos ? kPerMinute.end() : kPerMinute.find(text.substr(slash + 1));
  if (unit == kPerMinute.end()) {
    throw Error(ErrorKind::kInvalid, "slope", fmt::format("\"{}\" is not a size per time", text))
        .hint("write it like 1MiB/min, 64KiB/s or 1GiB/h");
  }
  return static_cast<double>(parse_size(text.substr(0, slash))) * unit->second;
}

namespace {

template <class Take>
void each_item(const std::string& list, Take take) {
  std::size_t at = 0;
  for (;;) {
    const std::size_t end = list.find(',', at);
    take(list.substr(at, end - at));
    if (end == std::string::npos) return;
    at = end + 1;
  }
}

}  // namespace

CLI::Option* add_parsed(CLI::App& app, const std::string& name, const std::string& value,
                        std::function<void(const std::string&)> parse, const std::string& help) {
  const auto checked = [name, parse = std::move(parse)](const std::string& text) {
    try {
      parse(text);
    } catch (const Error& error) {
      // Drop the operation: "--budget: size: ..." would name the subject twice.
      std::string_view what = error.what();
      if (const std::string twice = error.operation() + ": "; what.starts_with(twice)) {
        what.remove_prefix(twice.size());
      }
      throw CLI::ValidationError(name, std::string(what));
    }
  };
  return app.add_option_function<std::string>(name, checked, help)->type_name(value);
}

CLI::Option* add_size(CLI::App& app, const std::string& name,
                      std::function<void(std::uint64_t)> set, const std::string& help) {
  return add_parsed(
      app, name, "SIZE", [set = std::move(set)](const std::string& text) { set(parse_size(text)); },
      help);
}

namespace {

std::uint64_t parse_count(const std::string& text, std::uint64_t least) {
  if (const auto number = parse_number<std::uint64_t>(text); number && *number >= least) {
    return *number;
  }
  throw Error(ErrorKind::kInvalid, "number",
              fmt::format("\"{}\" is not a whole number of {} or more", text, least));
}

}  // namespace

CLI::Option* add_count(CLI::App& app, const std::string& name, std::uint64_t& value,
                       std::uint64_t least, const std::string& help) {
  const auto parse = [&value, least](const std::string& text) { value = parse_count(text, least); };
  return add_parsed(app, name, "N", parse, help);
}

CLI::Option* add_count(CLI::App& app, const std::string& name, std::optional<std::uint64_t>& value,
                       std::uint64_t least, const std::string& help) {
  const auto parse = [&value, least](const std::string& text) { value = parse_count(text, least); };
  return add_parsed(app, name, "N", parse, help);
}

CLI::Option* add_token(CLI::App& app, const std::string& name, const std::string& value,
                       std::optional<std::int64_t>& token, const std::string& help) {
  const auto parse = [&token](const std::string& text) {
    const auto number = parse_number<std::int64_t>(text);
    if (!number)
      throw Error(ErrorKind::kInvalid, "token", fmt::format("\"{}\" is not a token", text))
          .hint("tokens are whole numbers of 64 bits");
    token = *number;
  };
  return add_parsed(app, name, value, parse, help);
}

void add_seconds(CLI::App& app, double& seconds) {
  const auto parse = [&seconds](const std::string& text) {
    if (const auto number = parse_number<double>(text);
        number && *number >= 0 && *number <= 86400) {
      seconds = *number;
      return;
    }
    throw Error(ErrorKind::kInvalid, "seconds",
                fmt::format("\"{}\" is not a number from 0 to 86400", text));
  };
  add_parsed(app, "--seconds", "S", parse,
             fmt::format("How many seconds each engine runs; default {:g}", seconds));
}

// CLI11 splits "[1,2]" into two words if an option takes any number of words. It does not if the
// option expects more words than can ever be given.
void add_command_words(CLI::App& app, std::vector<std::string>& command) {
  constexpr int kMost = CLI::detail::expected_max_vector_size;
  app.add_option("CMD", command, "The command and its arguments; options come before it")
      ->type_name("")
      ->expected(kMost, kMost)
      ->take_all()
      ->allow_extra_args(false);
}

std::vector<std::string> separate_command(const CLI::App& app, std::vector<std::string> words) {
  if (!app.get_option_no_throw("CMD")) return words;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--") break;
    if (word.size() < 2 || word[0] != '-') {
      words.insert(words.begin() + static_cast<std::ptrdiff_t>(i), "--");
      break;
    }
    const std::string name = word[1] == '-' ? word.substr(0, word.find('=')) : word.substr(0, 2);
    const CLI::Option* option = app.get_option_no_throw(name);
    if (!option) break;                                                     // CLI11 reports it
    if (name.size() == word.size() && option->get_expected_min() > 0) ++i;  // its value
  }
  return words;
}

void add_patterns(CLI::App& app, std::vector<std::string>& patterns, const std::string& help) {
  app.add_option("--files", patterns, help)
      ->type_name("GLOB")
      ->expected(1)
      ->take_all()
      ->allow_extra_args(false);  // otherwise CLI11 turns "[ab]" into "ab"
}

void add_files(CLI::App& app, std::vector<std::string>& files) {
  app.add_option("FILE", files,
                 "Files, or patterns with * ? []; several are one array, row after row")
      ->required()
      ->type_name("");
}

std::vector<std::string> expand_all(const std::vector<std::string>& files) {
  std::vector<std::string> paths;
  for (const std::string& file : files) {
    for (std::string& path : expand_paths(file)) paths.push_back(std::move(path));
  }
  return paths;
}

void RawOptions::apply(ArrayOptions& options) const {
  if (!dtype.empty()) options.dtype = DType::parse(dtype);
  options.shape = shape;
  options.offset = offset;
  options.big_endian = big_endian;
  options.name = name;
}

std::string RawOptions::words() const {
  std::string text;
  if (!dtype.empty()) text += " --dtype " + dtype;
  if (!shape.empty()) text += fmt::format(" --shape {}", fmt::join(shape, ","));
  if (offset != 0) text += fmt::format(" --offset {}", offset);
  if (big_endian) text += " --big-endian";
  if (!name.empty()) text += " --name " + shell_word(name);
  return text;
}

void add_raw_options(CLI::App& app, RawOptions& raw) {
  app.add_option("--name", raw.name,
                 "Which array of a file that holds several: a column, a member of an .npz")
      ->type_name("NAME");
  const auto set_dtype = [&raw](const std::string& text) {
    const bool big = text.starts_with('>');  // as NumPy writes it
    raw.dtype = text.substr(big ? 1 : 0);
    raw.big_endian |= big;
    DType::parse(raw.dtype);
  };
  add_parsed(app, "--dtype", "NAME", set_dtype,
             "The file is raw numbers of this type: uint16, float32, V12 (records of 12 bytes)")
      ->group("Raw files");
  add_parsed(
      app, "--shape", "N,N...", [&raw](const std::string& text) { raw.shape = parse_shape(text); },
      "Its shape, such as 3000000,162; a leading -1 is computed from the file size")
      ->group("Raw files");
  add_size(
      app, "--offset", [&raw](std::uint64_t bytes) { raw.offset = bytes; },
      "Offset of its first number, in bytes")
      ->group("Raw files");
  app.add_flag("--big-endian", raw.big_endian, "Its numbers are big-endian")->group("Raw files");
}

std::vector<EngineKind> parse_engines(const std::string& list) {
  std::vector<EngineKind> engines;
  each_item(list, [&](const std::string& name) {
    const EngineKind kind = parse_engine(name);
    if (std::find(engines.begin(), engines.end(), kind) == engines.end()) engines.push_back(kind);
  });
  return engines;
}

std::vector<std::int64_t> parse_shape(const std::string& text) {
  std::vector<std::int64_t> shape;
  each_item(text, [&](const std::string& item) {
    const auto length = parse_number<std::int64_t>(item);
    if (!length) {
      throw Error(ErrorKind::kInvalid, "shape", fmt::format("\"{}\" is not a whole number", item))
          .hint("write the lengths of the axes with commas between, such as 3000000,162");
    }
    shape.push_back(*length);
  });
  return shape;
}

void add_process_options(CLI::App& app, ProcessOptions& options, const std::string& what) {
  add_parsed(
      app, "--pid", "N", [&options](const std::string& text) { options.pid = parse_pid(text); },
      what + " a running process instead, until it ends or Ctrl-C");
  add_parsed(
      app, "--seconds", "S",
      [&options](const std::string& text) { options.seconds = parse_seconds(text); },
      "With --pid: stop after this many seconds");
  app.add_flag("--no-live", options.no_live, "Do not show the status line");
}

void refuse_command_and_process(const std::string& name, const std::vector<std::string>& command,
                                const ProcessOptions& process) {
  if (command.empty() == !process.pid) {
    throw CLI::ValidationError(name, process.pid ? "give a command or --pid, not both"
                                                 : "give a command (-- CMD...) or --pid N");
  }
  if (process.seconds > 0 && !process.pid) {
    throw CLI::ValidationError("--seconds", "needs --pid; a command runs until it ends");
  }
}

}  // namespace evenkeel::cli
