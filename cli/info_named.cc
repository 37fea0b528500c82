#include "cli/info_named.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/visible.h"
#include "cli/describe.h"
#include "cli/json_out.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "evenkeel/bytes.h"
#include "evenkeel/weights.h"
#include "format/container.h"
#include "remote/address.h"

namespace evenkeel::cli {
namespace {

using Json = nlohmann::ordered_json;

bool names_weights(const std::string& path) {
  return path_ends_with(path, ".safetensors") || path_ends_with(path, ".safetensors.index.json") ||
         path_ends_with(path, ".gguf");
}

void show_members_as_table(const std::string& path, const std::vector<Member>& members) {
  Table table({"array", "type", "shape", ""});
  for (const Member& member : members) {
    table.add({visible(member.name), member.type, describe_shape(member.shape),
               member.refused.empty() ? "" : "not read: " + member.refused});
  }
  say(stdout, table.text());
  const auto readable = std::ranges::find_if(
      members, [](const Member& member) { return member.refused.empty() && !member.list; });
  if (readable == members.end()) return;
  next_command("evenkeel info " + shell_word(path) + " --name " + shell_word(readable->name),
               "one of them, and how it would be read");
}

}  // namespace

bool show_weights(const std::string& path, const std::optional<std::uint64_t>& budget, bool json) {
  if (!names_weights(path)) return false;
  WeightsOptions options;
  if (budget) options.budget = *budget;
  const Weights weights = Weights::open(path, options);
  if (json) {
    Json tensors = Json::array();
    for (const Tensor& tensor : weights.tensors()) {
      tensors.push_back({{"name", tensor.name},
                         {"dtype", tensor.type},
                         {"shape", tensor.shape},
                         {"file", weights.paths()[tensor.file]},
                         {"offset", tensor.offset},
                         {"bytes", tensor.bytes}});
    }
    print_json({{"file", path},
                {"files", weights.paths()},
                {"format", weights.format()},
                {"bytes", weights.bytes()},
                {"tensors", tensors},
                {"metadata", weights.metadata()}});
    return true;
  }
  Table table({"tensor", "dtype", "shape", "bytes"});
  for (const Tensor& tensor : weights.tensors()) {
    table.add({visible(tensor.name), visible(tensor.type), describe_shape(tensor.shape),
               with_commas(tensor.bytes)});
  }
  say(stdout, table.text() + fmt::format("\n{} tensors, {}, {}, {}\n",
                                         with_commas(weights.tensors().size()),
                                         format_size(weights.bytes()), weights.format(),
                                         describe_files(weights.paths())));
  return true;
}

bool show_members(const std::string& path, bool json) {
  if (path.find("://") != path.npos) return false;  // reading the header would cost a request
  const std::vector<std::string> files = dataset_files(path);
  const Source source = open_source(files.empty() ? path : files.front());
  const std::string head = source.read(0, kHeadBytes);
  if (!is_container(head)) return false;
  std::vector<Member> members = members_of(source, head, /*count_rows=*/true);
  if (members.size() == 1 && !members.front().list && members.front().refused.empty()) return false;
  for (std::size_t i = 1; i < files.size(); ++i) {
    const Source more = open_source(files[i]);
    const auto rows = members_of(more, more.read(0, kHeadBytes), /*count_rows=*/true);
    if (rows.empty() || rows.front().shape.empty()) continue;
    for (Member& member : members) {
      if (!member.shape.empty()) member.shape.front() += rows.front().shape.front();
    }
  }
  if (!json) {
    show_members_as_table(path, members);
    return true;
  }
  Json all = Json::array();
  for (const Member& member : members) {
    all.push_back({{"name", member.name},
                   {"type", member.type},
                   {"shape", member.shape},
                   {"list", member.list},
                   {"refused", member.refused}});
  }
  print_json({{"file", path}, {"format", container_kind(head)}, {"arrays", all}});
  return true;
}

}  // namespace evenkeel::cli
