#include <algorithm>
#include <array>
#include <utility>

#include "base/checked.h"
#include "base/sys.h"
#include "engine/engines.h"

namespace evenkeel {
namespace {

constexpr std::array<std::pair<std::string_view, EngineKind>, 9> kNames = {{
    {"auto", EngineKind::kAuto},
    {"map", EngineKind::kMap},
    {"remap", EngineKind::kRemap},
    {"advise", EngineKind::kAdvise},
    {"read", EngineKind::kRead},
    {"direct", EngineKind::kDirect},
    {"fill", EngineKind::kFill},
    {"remote", EngineKind::kRemote},
    {"decode", EngineKind::kDecode},
}};
constexpr std::array<std::pair<std::string_view, PageCache>, 2> kPageCacheNames = {{
    {"spare", PageCache::kSpare},
    {"fill", PageCache::kFill},
}};

// The most files that `auto` maps. Linux allows a process 65,530 mappings (vm.max_map_count), and
// the program needs some, too, for memory and threads.
constexpr std::size_t kMostMappedFiles = 1 << 14;

// An engine, together with which engine was asked for and why this one was chosen.
class Chosen final : public Engine {
 public:
  Chosen(std::unique_ptr<Engine> engine, EngineKind asked, std::string why)
      : engine_(std::move(engine)), asked_(asked), why_(std::move(why)) {}

  void run(Feed& feed) override { engine_->run(feed); }
  void require_unchanged(std::uint32_t file) override { engine_->require_unchanged(file); }
  unsigned concurrency() const override { return engine_->concurrency(); }
  EngineLimits limits() const override { return engine_->limits(); }
  EngineTotals totals() const override { return engine_->totals(); }
  bool maps_files() const override { return engine_->maps_files(); }
  const std::byte* mapped(std::uint32_t file) override { return engine_->mapped(file); }
  void count_mapped(std::uint64_t bytes) override { engine_->count_mapped(bytes); }
  bool pages_may_be_absent() const override { return engine_->pages_may_be_absent(); }
  bool known_in_memory(std::span<const FileRange> ranges) override {
    return engine_->known_in_memory(ranges);
  }
  std::size_t ranges_together() const override { return engine_->ranges_together(); }
  void request(std::span<const FileRange> ranges, std::vector<FileRange>& pending) override {
    engine_->request(ranges, pending);
  }
  void await(std::vector<FileRange>& pending) override { engine_->await(pending); }
  void release_memory() override { engine_->release_memory(); }
  bool reclaim_memory(const Budget& budget) override { return engine_->reclaim_memory(budget); }
  EngineReport report() const override {
    EngineReport report = engine_->report();
    report.asked = asked_;
    report.why = why_;
    return report;
  }

 private:
  const std::unique_ptr<Engine> engine_;
  const EngineKind asked_;
  const std::string why_;
};

std::unique_ptr<Engine> direct_or_read(EngineKind asked, const Layout& layout, const Budget& budget,
                                       std::string why) {
  std::string why_not;
  auto direct = make_direct_engine(layout, budget, why_not);
  if (!direct) {
    return std::make_unique<Chosen>(make_read_engine(layout, budget), asked,
                                    why + (why.empty() ? "" : "; ") + why_not);
  }
  if (asked == EngineKind::kAuto) {
    direct = make_cache_first_engine(layout, budget, std::move(direct));
  }
  return std::make_unique<Chosen>(std::move(direct), asked, std::move(why));
}

// How many bytes a mapping of the data may bring into memory: whole pages of whole files, because a
// page fault also reads the pages around it.
std::uint64_t mapped_bytes(const Layout& layout) {
  std::uint64_t bytes = 0;
  for (const Segment& segment : layout.segments) {
    bytes += round_up(segment.identity.size, sys::page_size());
  }
  return bytes;
}

std::unique_ptr<Engine> make_auto_engine(const Layout& layout, const Budget& budget,
                                         std::uint64_t working_room, const std::string& why_read) {
  if (!why_read.empty()) return direct_or_read(EngineKind::kAuto, layout, budget, why_read);
  const std::uint64_t bytes = mapped_bytes(layout), left = budget.left();
  std::string sizes =
      "data of " + format_size(bytes) + ", budget of " + format_size(budget.limit());
  if (left < budget.limit()) sizes += ", " + format_size(left) + " of it left";
  if (bytes <= left && working_room <= left - bytes) {
    if (layout.segments.size() > kMostMappedFiles) {
      return direct_or_read(EngineKind::kAuto, layout, budget,
                            "the data fits the budget (" + sizes + "), but it is in " +
                                with_commas(layout.segments.size()) +
                                " files, too many to map all of them");
    }
    if (auto share = budget.try_reserve(bytes, "mapped data")) {
      return std::make_unique<Chosen>(make_map_engine(layout, std::move(*share)), EngineKind::kAuto,
                                      "the data fits the budget (" + sizes + ")");
    }
  }
  return direct_or_read(EngineKind::kAuto, layout, budget,
                        "the data does not fit the budget (" + sizes + ")");
}

// Whether the data lies on servers. Throws Error (kInvalid) if `asked` cannot read such data.
bool reads_servers(EngineKind asked, const Layout& layout) {
  const auto is_remote = [](const Segment& segment) { return segment.remote != nullptr; };
  const auto remote = std::ranges::count_if(layout.segments, is_remote);
  const bool any = remote > 0;
  if (any && static_cast<std::size_t>(remote) < layout.segments.size()) {
    throw Error(ErrorKind::kInvalid, "open",
                "files and URLs cannot be parts of one array: " + std::to_string(remote) + " of " +
                    std::to_string(layout.segments.size()) + " are URLs")
        .hint("open them as two arrays, or use URLs for all of them");
  }
  if (any && asked != EngineKind::kAuto && asked != EngineKind::kRemote) {
    throw Error(ErrorKind::kInvalid, "engine",
                "\"" + std::string(engine_name(asked)) + "\" reads files, but this is a URL")
        .in(layout.segments.front().path)
        .hint("leave the engine at \"auto\", and page_cache at \"spare\"");
  }
  if (!any && asked == EngineKind::kRemote && !layout.segments.empty()) {
    throw Error(ErrorKind::kInvalid, "engine", "\"remote\" reads URLs, but this is a file")
        .in(layout.segments.front().path)
        .hint("leave the engine at \"auto\"");
  }
  return any;
}

// Whether the data must be decoded. Throws Error (kInvalid) if `asked` cannot read such data.
bool decodes_chunks(EngineKind asked, const Layout& layout) {
  const std::string path = layout.segments.empty() ? "" : layout.segments.front().path;
  if (layout.chunks && asked != EngineKind::kAuto && asked != EngineKind::kDecode) {
    throw Error(ErrorKind::kInvalid, "engine",
                "\"" + std::string(engine_name(asked)) +
                    "\" cannot decode the compressed chunks of this array")
        .in(path)
        .hint("leave the engine at \"auto\", and page_cache at \"spare\"");
  }
  if (!layout.chunks && asked == EngineKind::kDecode) {
    throw Error(ErrorKind::kInvalid, "engine", "\"decode\" reads compressed chunks")
        .in(path)
        .hint("leave the engine at \"auto\"");
  }
  return layout.chunks != nullptr;
}

}  // namespace

std::uint64_t buffer_size(const Budget& budget, std::uint64_t least, std::uint64_t most) {
  const std::uint64_t limit = budget.limit(), left = budget.left();
  const std::uint64_t above_half = left > limit / 2 ? left - limit / 2 : 0;
  const std::uint64_t size = round_down(std::min(limit / 16, above_half / 6), 64_KiB);
  return std::clamp(size, least, most);
}

std::uint64_t most_engine_memory(std::uint64_t limit) {
  constexpr std::uint64_t kLeast = 256_KiB, kMost = 8_MiB;  // as in `direct`, which needs the most
  return 2 * std::clamp(limit / 16, kLeast, kMost) + 1_MiB;
}

EngineKind parse_engine(std::string_view name) {
  std::string known;
  for (const auto& [text, kind] : kNames) {
    if (text == name) return kind;
    known += (known.empty() ? "" : ", ") + std::string(text);
  }
  throw Error(ErrorKind::kInvalid, "engine", "\"" + std::string(name) + "\" is not an engine")
      .hint("the engines are " + known);
}

std::string_view engine_name(EngineKind kind) {
  const auto* found =
      std::ranges::find(kNames, kind, [](const auto& entry) { return entry.second; });
  return found == kNames.end() ? "unknown" : found->first;
}

PageCache parse_page_cache(std::string_view name) {
  for (const auto& [text, page_cache] : kPageCacheNames) {
    if (text == name) return page_cache;
  }
  throw Error(ErrorKind::kInvalid, "page_cache",
              "\"" + std::string(name) + "\" is not a page_cache mode")
      .hint(
          "\"spare\" (the default) leaves nothing in the page cache; \"fill\" lets data stay there "
          "as long as memory is free");
}

std::string_view page_cache_name(PageCache page_cache) {
  return kPageCacheNames[page_cache == PageCache::kFill ? 1 : 0].first;
}

EngineKind engine_for(EngineKind asked, PageCache page_cache) {
  if (page_cache == PageCache::kSpare) return asked;
  if (asked == EngineKind::kAuto || asked == EngineKind::kFill) return EngineKind::kFill;
  throw Error(ErrorKind::kInvalid, "page_cache",
              "\"fill\" does not go with engine \"" + std::string(engine_name(asked)) + "\"")
      .hint("leave the engine at \"auto\": page_cache \"fill\" has its own engine");
}

std::unique_ptr<Engine> make_engine(EngineKind asked, const Layout& layout, const Budget& budget,
                                    std::uint64_t working_room, const std::string& why_read) {
  const std::string why = "asked for";
  if (reads_servers(asked, layout)) {
    return std::make_unique<Chosen>(make_remote_engine(layout, budget), asked,
                                    asked == EngineKind::kRemote ? why : "the paths are URLs");
  }
  if (decodes_chunks(asked, layout)) {
    return std::make_unique<Chosen>(
        make_decode_engine(layout, budget), asked,
        asked == EngineKind::kDecode ? why : "its chunks must be decoded");
  }
  switch (asked) {
    case EngineKind::kMap:
      return std::make_unique<Chosen>(make_map_engine(layout), asked, why);
    case EngineKind::kRemap:
      return std::make_unique<Chosen>(make_remap_engine(layout, budget), asked, why);
    case EngineKind::kAdvise:
      return std::make_unique<Chosen>(make_advise_engine(layout, budget), asked, why);
    case EngineKind::kRead:
      return std::make_unique<Chosen>(make_read_engine(layout, budget), asked, why);
    case EngineKind::kDirect:
      return direct_or_read(asked, layout, budget, why);
    case EngineKind::kFill:
      return std::make_unique<Chosen>(make_fill_engine(layout, budget), asked,
                                      "asked for by page_cache \"fill\": the budget of " +
                                          format_size(budget.limit()) +
                                          " covers the library's own memory, not the page cache");
    case EngineKind::kAuto:
    case EngineKind::kRemote:
    case EngineKind::kDecode:
      break;
  }
  return make_auto_engine(layout, budget, working_room, why_read);
}

}  // namespace evenkeel
