// evenkeel info: what is in a file, and how much of it is cached.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/visible.h"
#include "cli/commands.h"
#include "cli/describe.h"
#include "cli/info_named.h"
#include "cli/json_out.h"
#include "cli/options.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "evenkeel/bytes.h"
#include "evenkeel/meter.h"
#include "format/source.h"
#include "remote/opening.h"

namespace evenkeel::cli {
namespace {

struct Info {
  std::vector<std::string> files;
  RawOptions raw;
  std::optional<std::uint64_t> budget;
  EngineKind engine = EngineKind::kAuto;
  bool json = false;
};

constexpr char kInfoFooter[] = R"(
Examples:
  evenkeel info features.npy
  evenkeel info 'shard-*.npy' --budget 1GiB
  evenkeel info train.bin --dtype uint16
  evenkeel info model.safetensors
  evenkeel info table.arrow --name features
  evenkeel info s3://bucket/features.npy
  evenkeel info x.f32 --dtype float32 --shape -1,162 --json)";

using Json = nlohmann::ordered_json;

struct OnDisk {
  std::uint64_t bytes = 0;
  std::optional<std::uint64_t> cached = 0;
  bool remote = false;  // on a server
};

OnDisk look_at_disk(const std::vector<std::string>& paths) {
  OnDisk disk;
  for (const std::string& path : paths) {
    if (is_url(path)) {
      disk.remote = true;
      disk.bytes += open_object(path)->size;
      continue;
    }
    disk.bytes += std::filesystem::file_size(path);
    const auto cache = file_cache(path);
    disk.cached = disk.cached && cache ? std::optional(*disk.cached + cache->cached) : std::nullopt;
  }
  return disk;
}

std::string cached_text(const OnDisk& disk) {
  if (disk.remote) return "not on this machine";
  if (!disk.cached)
    return "unknown: the kernel reports it only for files that you own or may write";
  const double share = disk.bytes == 0 ? 0 : 100.0 * double(*disk.cached) / double(disk.bytes);
  return fmt::format("{} in the page cache now ({:.0f} %)", format_size(*disk.cached),
                     std::min(share, 100.0));
}

std::string size_text(std::uint64_t bytes) {
  if (bytes < 1024) return fmt::format("{} bytes", bytes);
  return fmt::format("{} ({} bytes)", format_size(bytes), with_commas(bytes));
}

Json files_json(const std::vector<std::string>& paths, const OnDisk& disk) {
  std::vector<std::string> shown;
  shown.reserve(paths.size());
  for (const std::string& path : paths) shown.push_back(without_query(path));
  return {{"file", shown.front()},
          {"files", shown},
          {"file_bytes", disk.bytes},
          {"cached_bytes", disk.cached ? Json(*disk.cached) : Json()}};
}

void show_array(const Info& info, const Array& array) {
  const OnDisk disk = look_at_disk(array.paths());
  const EngineReport engine = array.engine();
  if (info.json) {
    Json json = files_json(array.paths(), disk);
    json.update({{"format", array.format()},
                 {"dtype", array.dtype().name()},
                 {"shape", array.shape()},
                 {"rows", array.rows()},
                 {"row_bytes", array.row_bytes()},
                 {"bytes", array.bytes()},
                 {"budget_bytes", array.budget().limit()},
                 {"engine", engine_name(engine.chosen)},
                 {"how", engine.how},
                 {"why", engine.why}});
    print_json(json);
    return;
  }
  say(stdout, facts({{"file", describe_files(array.paths())},
                     {"format", array.format()},
                     {"dtype", array.dtype().name()},
                     {"shape", describe_shape(array.shape())},
                     {"rows", fmt::format("{} of {}", with_commas(array.rows()),
                                          size_text(array.row_bytes()))},
                     {"data", size_text(array.bytes())},
                     {"files", fmt::format("{} with {}", with_commas(array.paths().size()),
                                           size_text(disk.bytes))},
                     {"cached", cached_text(disk)},
                     {"budget", array.budget().describe()},
                     {"engine", fmt::format("{}; {}", engine.how, engine.why)}}));
  if (disk.remote) {
    next_command("evenkeel doctor " + shell_word(without_query(info.files.front())),
                 "how fast the server is, and what that means");
    return;
  }
  next_command("evenkeel compare " + shell_word(info.files.front()) + info.raw.words() +
                   " --pattern rows --cold",
               "every engine on this file, side by side");
}

// Bytes as `xxd` shows them: "93 4e 55 4d  |.NUM|".
std::string first_bytes(const std::string& path, std::string& hex) {
  const std::string head = open_even_empty(path).read(0, 16);
  std::string plain, spaced;
  for (const char c : head) {
    const auto value = static_cast<unsigned char>(c);
    hex += fmt::format("{:02x}", value);
    spaced += fmt::format("{:02x} ", value);
    plain += value >= 32 && value < 127 ? static_cast<char>(value) : '.';
  }
  return fmt::format("{} |{}|", spaced, plain);
}

std::string guesses(std::uint64_t bytes) {
  std::string text;
  for (const char* name : {"uint16", "float32", "float64"}) {
    const std::uint32_t size = DType::parse(name).size;
    if (bytes % size != 0) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", with_commas(bytes / size), name);
  }
  return text.empty() ? "an odd number of bytes: 8-bit numbers, or a header comes first" : text;
}

// --dtype and the options that need it, and --name.
bool is_described(const RawOptions& raw) { return !raw.words().empty(); }

// For an unknown format: shows the size, the first bytes and what to try next.
void show_unknown(const Info& info, const std::vector<std::string>& paths, const Error& error) {
  const OnDisk disk = look_at_disk(paths);
  std::string hex;
  const std::string begins = first_bytes(paths.front(), hex);
  if (info.json) {
    Json json = files_json(paths, disk);
    json.update({{"format", nullptr}, {"first_bytes", hex}, {"hint", error.hint_text()}});
    print_json(json);
    return;
  }
  say(stdout, facts({{"file", describe_files(paths)},
                     {"format", "unknown: " + error.hint_text()},
                     {"size", size_text(disk.bytes)},
                     {"begins", begins},
                     {"could be", guesses(disk.bytes)},
                     {"cached", cached_text(disk)}}));
  next_command("evenkeel info " + shell_word(paths.front()) + " --dtype uint16",
               "the same file, read as numbers of this type (see also --shape, --offset)");
}

bool is_unknown(const Info& info, const Error& error) {
  return !is_described(info.raw) && error.kind() == ErrorKind::kFormat &&
         std::string(error.what()).find("not a known format") != std::string::npos;
}

ArrayOptions array_options(const Info& info) {
  ArrayOptions options;
  info.raw.apply(options);
  options.engine = info.engine;
  if (info.budget) options.budget = *info.budget;
  return options;
}

// One of several files, described by itself.
struct FileFacts {
  std::string path;
  std::optional<Array> array;  // empty: `error` says why
  std::string error;
  OnDisk disk;
};

FileFacts facts_of(const Info& info, const std::string& path) {
  FileFacts file{path, std::nullopt, "", {}};
  std::vector<std::string> files = {path};
  try {
    file.array = Array::open({path}, array_options(info));
    files = file.array->paths();  // of a dataset, those in its folder
  } catch (const Error& error) {
    if (!is_unknown(info, error)) throw;
    file.error = "unknown format";
  }
  file.disk = look_at_disk(files);
  return file;
}

Json file_json(const FileFacts& file) {
  Json json = {{"file", without_query(file.path)},
               {"file_bytes", file.disk.bytes},
               {"cached_bytes", file.disk.cached ? Json(*file.disk.cached) : Json()},
               {"format", file.array ? Json(file.array->format()) : Json()}};
  if (file.array) {
    json.update({{"dtype", file.array->dtype().name()},
                 {"shape", file.array->shape()},
                 {"bytes", file.array->bytes()}});
  }
  return json;
}

// Several FILE arguments: prints a row for each, and describes them as one array.
int list_files(const Info& info, const std::vector<std::string>& paths) {
  constexpr std::size_t kMostRows = 40;
  std::string together;
  try {
    together = describe(Array::open(paths, array_options(info)));
  } catch (const Error&) {
    together.clear();  // different shapes or types: each is an array of its own
  }
  Json each = Json::array();
  Table table({"file", "format", "dtype", "shape", "size", "cached"});
  for (const std::string& path : paths) {
    const FileFacts file = facts_of(info, path);
    if (info.json) {
      each.push_back(file_json(file));
      continue;
    }
    if (each.size() == kMostRows) break;
    each.push_back(nullptr);
    table.add({visible(path), file.array ? file.array->format() : file.error,
               file.array ? file.array->dtype().name() : "",
               file.array ? describe_shape(file.array->shape()) : "", format_size(file.disk.bytes),
               size_or_unknown(file.disk.cached)});
  }
  if (info.json) {
    print_json({{"files", each}, {"together", together.empty() ? Json() : Json(together)}});
    return 0;
  }
  std::string text = table.text();
  if (paths.size() > kMostRows) {
    text += fmt::format("and {} more\n", with_commas(paths.size() - kMostRows));
  }
  text += together.empty() ? "\nThese files are not one array: their types or row shapes differ.\n"
                           : fmt::format("\nRead as one array: {}\n", together);
  say(stdout, text);
  next_command("evenkeel info " + shell_word(paths.front()) + info.raw.words(),
               "one of them, and how it would be read");
  return 0;
}

int run(const Info& info) {
  const std::vector<std::string> paths = expand_all(info.files);
  if (info.files.size() > 1) return list_files(info, paths);
  if (!is_described(info.raw) && paths.size() == 1 &&
      (show_weights(paths.front(), info.budget, info.json) ||
       show_members(paths.front(), info.json))) {
    return 0;
  }
  const ArrayOptions options = array_options(info);
  std::optional<Array> array;
  try {
    array = Array::open(paths, options);
  } catch (const Error& error) {
    if (!is_unknown(info, error)) throw;
    show_unknown(info, paths, error);
    return 0;
  }
  show_array(info, *array);
  return 0;
}

}  // namespace

void add_info(CLI::App& app, int& exit_code) {
  CLI::App* command = app.add_subcommand(
      "info", "Show what is in a file: format, dtype, shape, how much of it is cached");
  auto info = std::make_shared<Info>();
  add_files(*command, info->files);
  add_size(
      *command, "--budget", [info](std::uint64_t bytes) { info->budget = bytes; },
      "Show how the file would be read with this budget; default: an eighth of the memory "
      "available");
  add_parsed(
      *command, "--engine", "NAME",
      [info](const std::string& name) { info->engine = parse_engine(name); },
      "Show how this engine would read the file; default auto");
  command->add_flag("--json", info->json, "Print the facts as JSON");
  add_raw_options(*command, info->raw);
  command->footer(kInfoFooter);
  command->callback([info, &exit_code] { exit_code = run(*info); });
}

}  // namespace evenkeel::cli
