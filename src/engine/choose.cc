#include <algorithm>
#include <array>
#include <utility>

#include "base/checked.h"
#include "base/sys.h"
#include "engine/engines.h"

namespace evenkeel {
namespace {

constexpr std::array<std::pair<std::string_view, EngineKind>, 6> kNames = {{
    {"auto", EngineKind::kAuto},
    {"map", EngineKind::kMap},
    {"remap", EngineKind::kRemap},
    {"advise", EngineKind::kAdvise},
    {"read", EngineKind::kRead},
    {"direct", EngineKind::kDirect},
}};

// An engine and what was decided on the way to it.
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

// What mapping the data may bring into memory: whole pages, and all of each file, since faults read
// around themselves.
std::uint64_t mapped_bytes(const Layout& layout) {
  std::uint64_t bytes = 0;
  for (const Segment& segment : layout.segments) {
    bytes += round_up(segment.identity.size, sys::page_size());
  }
  return bytes;
}

std::unique_ptr<Engine> make_auto_engine(const Layout& layout, const Budget& budget,
                                         std::uint64_t working_room) {
  const std::uint64_t bytes = mapped_bytes(layout), left = budget.left();
  std::string sizes =
      "data of " + format_size(bytes) + ", budget of " + format_size(budget.limit());
  if (left < budget.limit()) sizes += ", " + format_size(left) + " of it left";
  if (bytes <= left && working_room <= left - bytes) {
    if (auto share = budget.try_reserve(bytes, "mapped data")) {
      return std::make_unique<Chosen>(make_map_engine(layout, std::move(*share)), EngineKind::kAuto,
                                      "the data fits the budget (" + sizes + ")");
    }
  }
  return direct_or_read(EngineKind::kAuto, layout, budget,
                        "the data does not fit the budget (" + sizes + ")");
}

}  // namespace

std::uint64_t buffer_size(const Budget& budget, std::uint64_t least, std::uint64_t most) {
  const std::uint64_t limit = budget.limit(), left = budget.left();
  const std::uint64_t above_half = left > limit / 2 ? left - limit / 2 : 0;
  const std::uint64_t size = round_down(std::min(limit / 16, above_half / 6), 64_KiB);
  return std::clamp(size, least, most);
}

std::uint64_t most_engine_memory(std::uint64_t limit) {
  constexpr std::uint64_t kLeast = 256_KiB, kMost = 8_MiB;  // of all engines
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

std::unique_ptr<Engine> make_engine(EngineKind asked, const Layout& layout, const Budget& budget,
                                    std::uint64_t working_room) {
  const std::string why = "asked for";
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
    case EngineKind::kAuto:
      break;
  }
  return make_auto_engine(layout, budget, working_room);
}

}  // namespace evenkeel
