// evenkeel cache: lists, verifies or clears a cache of remote objects on disk.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>

#include "base/visible.h"
#include "cli/commands.h"
#include "cli/json_out.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"
#include "remote/disk_cache.h"

namespace evenkeel::cli {
namespace {

struct CacheWords {
  std::string action, folder;
  bool json = false;
};

constexpr char kCacheFooter[] = R"(
FOLDER is the folder in cache="FOLDER:SIZE". `verify` exits with 1 if a block is damaged.

Examples:
  evenkeel cache ls /nvme/ek
  evenkeel cache verify /nvme/ek
  evenkeel cache clear /nvme/ek)";

std::string root_in(const CacheWords& words) {
  std::string root = DiskCache::root_of(words.folder);
  if (!std::filesystem::is_directory(root)) {
    throw Error(ErrorKind::kInvalid, "cache", "there is no cache in this folder")
        .in(words.folder)
        .hint("use the folder from cache=\"FOLDER:SIZE\"");
  }
  return root;
}

// The file name of a block begins with the key of its object.
std::string object_of(const CachedBlock& block) {
  const std::string name = std::filesystem::path(block.path).filename().string();
  return name.substr(0, name.find('-'));
}

int list_blocks(const CacheWords& words) {
  struct Totals {
    std::uint64_t blocks = 0, bytes = 0;
  };
  std::map<std::string, Totals> objects;
  Totals all;
  std::uint64_t unfinished = 0;
  for (const CachedBlock& block : DiskCache::list(root_in(words))) {
    if (block.unfinished) {
      ++unfinished;
      continue;
    }
    for (Totals* totals : {&objects[object_of(block)], &all}) {
      ++totals->blocks;
      totals->bytes += block.bytes;
    }
  }
  if (words.json) {
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const auto& [key, totals] : objects) {
      rows.push_back({{"object", key}, {"blocks", totals.blocks}, {"bytes", totals.bytes}});
    }
    print_json({{"objects", rows},
                {"blocks", all.blocks},
                {"bytes", all.bytes},
                {"unfinished", unfinished}});
    return 0;
  }
  Table table({"object", "blocks", "size"});
  for (const auto& [key, totals] : objects) {
    table.add({key, with_commas(totals.blocks), format_size(totals.bytes)});
  }
  say(stdout, table.text() + fmt::format("\n{} blocks of {} objects, {}; {} unfinished\n",
                                         with_commas(all.blocks), with_commas(objects.size()),
                                         format_size(all.bytes), with_commas(unfinished)));
  return 0;
}

int verify_blocks(const CacheWords& words) {
  std::vector<std::string> damaged;
  std::uint64_t whole = 0;
  for (const CachedBlock& block : DiskCache::list(root_in(words))) {
    if (block.unfinished) continue;
    if (DiskCache::verify(block.path)) {
      ++whole;
    } else if (std::filesystem::exists(block.path)) {  // it was not evicted meanwhile
      damaged.push_back(block.path);
    }
  }
  if (words.json) {
    print_json({{"whole", whole}, {"damaged", damaged}});
  } else {
    for (const std::string& path : damaged) say(stdout, "damaged: " + visible(path) + "\n");
    say(stdout,
        fmt::format(
            "{} blocks are whole, {} are damaged{}\n", with_commas(whole),
            with_commas(damaged.size()),
            damaged.empty() ? "" : " (they are not used; the next read of one removes it)"));
  }
  return damaged.empty() ? 0 : 1;
}

int clear_blocks(const CacheWords& words) {
  const std::uint64_t freed = DiskCache::clear(root_in(words));
  if (words.json) {
    print_json({{"freed", freed}});
  } else {
    say(stdout, fmt::format("{} freed\n", format_size(freed)));
  }
  return 0;
}

}  // namespace

void add_cache(CLI::App& app, int& exit_code) {
  CLI::App* command =
      app.add_subcommand("cache", "List, verify or clear a cache of remote objects on disk");
  auto words = std::make_shared<CacheWords>();
  command
      ->add_option("ACTION", words->action,
                   "ls: list the objects; verify: check every block; clear: remove all blocks")
      ->required()
      ->check(CLI::IsMember({"ls", "verify", "clear"}))
      ->type_name("");
  command->add_option("FOLDER", words->folder, "The folder of the cache")
      ->required()
      ->type_name("");
  command->add_flag("--json", words->json, "Print the facts as JSON");
  command->footer(kCacheFooter);
  command->callback([words, &exit_code] {
    exit_code = words->action == "ls"       ? list_blocks(*words)
                : words->action == "verify" ? verify_blocks(*words)
                                            : clear_blocks(*words);
  });
}

}  // namespace evenkeel::cli
