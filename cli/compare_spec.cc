#include "cli/compare_spec.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "evenkeel/error.h"

namespace evenkeel::cli {
namespace {

template <class T>
nlohmann::json value_or_null(const std::optional<T>& value) {
  return value ? nlohmann::json(*value) : nlohmann::json();
}

std::optional<std::uint64_t> maybe_bytes(const nlohmann::json& json) {
  if (json.is_null()) return std::nullopt;
  return json.get<std::uint64_t>();
}

// JSON is UTF-8, names of files are any bytes: what is not ASCII goes as %NN.
std::string escaped(const std::string& path) {
  std::string text;
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    text += byte < 128 && c != '%' ? std::string(1, c) : fmt::format("%{:02x}", byte);
  }
  return text;
}

std::string unescaped(const std::string& text) {
  std::string path;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool escape = text[i] == '%' && i + 2 < text.size();
    path += escape ? static_cast<char>(std::stoi(text.substr(i + 1, 2), nullptr, 16)) : text[i];
    if (escape) i += 2;
  }
  return path;
}

}  // namespace

Pattern parse_pattern(const std::string& name) {
  if (name == "crops") return Pattern::kCrops;
  if (name == "rows") return Pattern::kRows;
  if (name == "scan") return Pattern::kScan;
  throw Error(ErrorKind::kInvalid, "pattern", fmt::format("\"{}\" is none", name))
      .hint("crops (1,024 elements at random places), rows (shuffled rows) or scan (in order)");
}

std::string pattern_name(Pattern pattern) {
  switch (pattern) {
    case Pattern::kCrops:
      return "crops";
    case Pattern::kRows:
      return "rows";
    case Pattern::kScan:
      return "scan";
  }
  return "";
}

std::string item_name(Pattern pattern) { return pattern == Pattern::kCrops ? "crops" : "rows"; }

void to_json(nlohmann::json& json, const CompareSpec& spec) {
  nlohmann::json paths = nlohmann::json::array();
  for (const std::string& path : spec.paths) paths.push_back(escaped(path));
  json = {{"paths", std::move(paths)},
          {"dtype", spec.raw.dtype},
          {"shape", spec.raw.shape},
          {"offset", spec.raw.offset},
          {"big_endian", spec.raw.big_endian},
          {"pattern", pattern_name(spec.pattern)},
          {"budget", spec.budget},
          {"seconds", spec.seconds},
          {"chunk", spec.chunk},
          {"merge_gap", value_or_null(spec.merge_gap)},
          {"seed", spec.seed}};
}

void from_json(const nlohmann::json& json, CompareSpec& spec) {
  for (const auto& path : json.at("paths"))
    spec.paths.push_back(unescaped(path.get<std::string>()));
  json.at("dtype").get_to(spec.raw.dtype);
  json.at("shape").get_to(spec.raw.shape);
  json.at("offset").get_to(spec.raw.offset);
  json.at("big_endian").get_to(spec.raw.big_endian);
  spec.pattern = parse_pattern(json.at("pattern").get<std::string>());
  json.at("budget").get_to(spec.budget);
  json.at("seconds").get_to(spec.seconds);
  json.at("chunk").get_to(spec.chunk);
  spec.merge_gap = maybe_bytes(json.at("merge_gap"));
  json.at("seed").get_to(spec.seed);
}

void to_json(nlohmann::json& json, const WorkerResult& result) {
  nlohmann::json points = nlohmann::json::array();
  for (const Checkpoint& point : result.checkpoints) {
    points.push_back({point.slices, point.checksum});
  }
  json = {{"asked", engine_name(result.engine.asked)},
          {"chosen", engine_name(result.engine.chosen)},
          {"how", result.engine.how},
          {"why", result.engine.why},
          {"items", result.items},
          {"wanted_bytes", result.wanted_bytes},
          {"disk_bytes", value_or_null(result.disk_bytes)},
          {"chunk", result.chunk},
          {"slice_items", result.slice_items},
          {"seconds", result.seconds},
          {"checkpoints", std::move(points)}};
}

void from_json(const nlohmann::json& json, WorkerResult& result) {
  result.engine.asked = parse_engine(json.at("asked").get<std::string>());
  result.engine.chosen = parse_engine(json.at("chosen").get<std::string>());
  json.at("how").get_to(result.engine.how);
  json.at("why").get_to(result.engine.why);
  json.at("items").get_to(result.items);
  json.at("wanted_bytes").get_to(result.wanted_bytes);
  result.disk_bytes = maybe_bytes(json.at("disk_bytes"));
  json.at("chunk").get_to(result.chunk);
  json.at("slice_items").get_to(result.slice_items);
  json.at("seconds").get_to(result.seconds);
  for (const auto& point : json.at("checkpoints")) {
    result.checkpoints.push_back(
        {point.at(0).get<std::uint64_t>(), point.at(1).get<std::uint64_t>()});
  }
}

}  // namespace evenkeel::cli
