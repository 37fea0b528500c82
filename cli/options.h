// Options that several commands share, and how their text becomes values.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "evenkeel/array.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace CLI {
class App;
}

namespace evenkeel::cli {

// Adds an option whose value `parse` reads. An Error thrown there is a usage error (exit code 2).
CLI::Option* add_parsed(CLI::App& app, const std::string& name, const std::string& value,
                        std::function<void(const std::string&)> parse, const std::string& help);

// Adds an option that takes a size (see parse_size).
CLI::Option* add_size(CLI::App& app, const std::string& name,
                      std::function<void(std::uint64_t)> set, const std::string& help);

// Adds an option that takes a whole number, at least `least`.
CLI::Option* add_count(CLI::App& app, const std::string& name, std::uint64_t& value,
                       std::uint64_t least, const std::string& help);
CLI::Option* add_count(CLI::App& app, const std::string& name, std::optional<std::uint64_t>& value,
                       std::uint64_t least, const std::string& help);
// A token of a vocabulary: any number of 64 bits.
CLI::Option* add_token(CLI::App& app, const std::string& name, const std::string& value,
                       std::optional<std::int64_t>& token, const std::string& help);

// --seconds; 0 means as little as possible.
void add_seconds(CLI::App& app, double& seconds);

// CMD...: a command and its arguments.
void add_command_words(CLI::App& app, std::vector<std::string>& command);
// `words` are the arguments after the subcommand. Inserts "--" before the first one that is neither
// an option of the subcommand nor the value of one. Without CMD..., returns them unchanged.
std::vector<std::string> separate_command(const CLI::App& app, std::vector<std::string> words);
// --files GLOB, any number of times.
void add_patterns(CLI::App& app, std::vector<std::string>& patterns, const std::string& help);

// FILE...: paths or patterns, at least one.
void add_files(CLI::App& app, std::vector<std::string>& files);
// All files that these name, in the order given.
std::vector<std::string> expand_all(const std::vector<std::string>& files);

// Describes a file without a header.
struct RawOptions {
  std::string dtype;  // as typed; empty: taken from the file
  std::vector<std::int64_t> shape;
  std::uint64_t offset = 0;
  bool big_endian = false;
  std::string name;  // which array of a file that holds several

  void apply(ArrayOptions& options) const;
  std::string words() const;  // the options as text, to suggest the next command
};
void add_raw_options(CLI::App& app, RawOptions& raw);

std::vector<EngineKind> parse_engines(const std::string& list);  // "map,direct"
std::vector<std::int64_t> parse_shape(const std::string& text);  // "3000000,162"

// "10ms", "0.5s", "250us". Throws Error (kInvalid).
std::chrono::nanoseconds parse_interval(const std::string& text);
// "30", "0.5": more than 0. Throws Error (kInvalid).
double parse_seconds(const std::string& text);
// A process ID. Throws Error (kInvalid).
pid_t parse_pid(const std::string& text);
// "1MiB/min", "64KiB/s", "1GiB/h" as bytes per minute. Throws Error (kInvalid).
double parse_slope(const std::string& text);

// A running process to watch or guard instead of a command.
struct ProcessOptions {
  std::optional<pid_t> pid;
  double seconds = 0;    // how long; 0: until it ends
  bool no_live = false;  // no status line at the bottom of the terminal; also for commands
};
// --pid, --seconds, --no-live. `what` is the verb for the help: "Watch". `options` must outlive
// `app`.
void add_process_options(CLI::App& app, ProcessOptions& options, const std::string& what);
// Throws CLI::ValidationError unless exactly one of the two is given.
void refuse_command_and_process(const std::string& name, const std::vector<std::string>& command,
                                const ProcessOptions& process);

}  // namespace evenkeel::cli
