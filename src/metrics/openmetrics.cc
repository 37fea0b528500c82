#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "base/utf8.h"
#include "base/visible.h"
#include "evenkeel/metrics.h"
#include "metrics/live.h"

namespace evenkeel {
namespace {

using Labels = std::vector<std::pair<std::string_view, std::string>>;

// Writes OpenMetrics text, family by family: all samples of a family must follow each other.
class OpenMetrics {
 public:
  enum class Type { kCounter, kGauge, kInfo };

  void family(std::string_view name, Type type, std::string_view unit, std::string_view help) {
    name_ = name;
    suffix_ = type == Type::kCounter ? "_total" : type == Type::kInfo ? "_info" : "";
    constexpr std::array<std::string_view, 3> kTypes = {"counter", "gauge", "info"};
    line("# TYPE ", kTypes[static_cast<std::size_t>(type)]);
    if (!unit.empty()) line("# UNIT ", unit);
    line("# HELP ", help);
  }
  void sample(const Labels& labels, std::string_view value) {
    text_ += name_;
    text_ += suffix_;
    for (const auto& [label, text] : labels) {
      text_ += &label == &labels.front().first ? '{' : ',';
      text_ += label;
      text_ += "=\"";
      escape(text);
      text_ += '"';
    }
    if (!labels.empty()) text_ += '}';
    text_ += ' ';
    text_ += value;
    text_ += '\n';
  }
  void sample(const Labels& labels, std::uint64_t value) { sample(labels, std::to_string(value)); }
  // Nanoseconds as seconds, exactly.
  void seconds(const Labels& labels, std::uint64_t ns) {
    const std::string rest = std::to_string(ns % 1'000'000'000);
    sample(labels,
           std::to_string(ns / 1'000'000'000) + "." + std::string(9 - rest.size(), '0') + rest);
  }
  std::string end() && {
    text_ += "# EOF\n";
    return std::move(text_);
  }

 private:
  void line(std::string_view begin, std::string_view rest) {
    text_ += begin;
    text_ += name_;
    text_ += ' ';
    text_ += rest;
    text_ += '\n';
  }
  // File names may contain any bytes; the format is UTF-8.
  void escape(std::string_view text) {
    while (!text.empty()) {
      const char32_t c = take_char(text);
      if (c == U'\\' || c == U'"') text_ += '\\';
      if (c == U'\n') {
        text_ += "\\n";
      } else {
        append_char(text_, c);
      }
    }
  }

  std::string name_, suffix_, text_;
};

using Type = OpenMetrics::Type;
using Object = LiveReport::Object;

bool reads(const Object& object) {
  return object.kind == LiveKind::kArray || object.kind == LiveKind::kWeights;
}

Labels labels_of(const Object& object) {
  if (reads(object)) {
    // The query of a URL may contain a signature, which is secret.
    return {{"array", std::to_string(object.number)}, {"path", without_query(object.labels.path)}};
  }
  return {{"loader", std::to_string(object.number)}};
}

Labels with(Labels labels, std::string_view label, std::string_view value) {
  labels.emplace_back(label, value);
  return labels;
}

// The counters that exist for the process and for each array.
class ReadFamilies {
 public:
  ReadFamilies(OpenMetrics& out, std::string prefix, std::string of)
      : out_(out), prefix_(std::move(prefix)), of_(std::move(of)) {}
  void add(Labels labels, const ArrayStats& stats) { rows_.emplace_back(std::move(labels), stats); }

  void write() {
    family("read_bytes", Type::kCounter, "bytes", "Bytes read, by source");
    for (const auto& row : rows_) {
      const ArrayStats& stats = row.second;
      const auto source = [&](std::string_view name, std::uint64_t bytes) {
        out_.sample(with(row.first, "source", name), bytes);
      };
      source("disk", stats.bytes_from_disk);
      source("page_cache", stats.bytes_from_page_cache);
      source("mapping", stats.bytes_from_mapping);
      source("cache", stats.bytes_from_cache);
      source("network", stats.bytes_from_network);
      source("disk_cache", stats.bytes_from_disk_cache);
    }
    family("requests", Type::kCounter, "", "Requests sent to a disk or a server");
    each(&ArrayStats::requests);
    family("requests_in_flight", Type::kGauge, "", "Requests not yet answered");
    each(&ArrayStats::in_flight);
    family("retries", Type::kCounter, "", "Requests to servers that were retried after a failure");
    each(&ArrayStats::retries);
    family("hedges", Type::kCounter, "", "Second requests to servers for bytes that were late");
    each(&ArrayStats::hedges);
    family("read_wait_seconds", Type::kCounter, "seconds",
           "Total time that threads waited for a disk or a server");
    for (const auto& [labels, stats] : rows_) out_.seconds(labels, stats.wait_ns);
    family("cache_hits", Type::kCounter, "", "Blocks that were in the cache");
    each(&ArrayStats::cache_hits);
    family("cache_misses", Type::kCounter, "", "Blocks that were not in the cache");
    each(&ArrayStats::cache_misses);
    family("cache_bytes", Type::kGauge, "bytes", "Bytes of the budget that the cache holds");
    each(&ArrayStats::cache_bytes);
  }

 private:
  void family(std::string_view name, Type type, std::string_view unit, std::string_view help) {
    out_.family(prefix_ + std::string(name), type, unit, std::string(help) + of_);
  }
  void each(std::uint64_t ArrayStats::*field) {
    for (const auto& [labels, stats] : rows_) out_.sample(labels, stats.*field);
  }

  OpenMetrics& out_;
  const std::string prefix_, of_;
  std::vector<std::pair<Labels, ArrayStats>> rows_;
};

void write_budgets(OpenMetrics& out, const std::vector<BudgetFigures>& budgets) {
  const auto each = [&](std::string_view name, std::uint64_t BudgetFigures::*field,
                        std::string_view help) {
    out.family(name, Type::kGauge, "bytes", help);
    for (const BudgetFigures& one : budgets) {
      out.sample({{"budget", std::to_string(one.number)}}, one.*field);
    }
  };
  each("evenkeel_budget_limit_bytes", &BudgetFigures::limit, "The limit of a budget.");
  each("evenkeel_budget_in_use_bytes", &BudgetFigures::in_use,
       "Bytes of a budget that are reserved now, including caches.");
  each("evenkeel_budget_cached_bytes", &BudgetFigures::cached,
       "Reserved bytes that caches hold and free on demand.");
  each("evenkeel_budget_peak_bytes", &BudgetFigures::peak,
       "The most bytes of a budget that were ever reserved.");
  out.family("evenkeel_budget_held_bytes", Type::kGauge, "bytes",
             "Reserved bytes of a budget, by use.");
  for (const BudgetFigures& one : budgets) {
    for (const BudgetUse& use : one.uses) {
      out.sample({{"budget", std::to_string(one.number)}, {"use", use.what}}, use.bytes);
    }
  }
}

void write_loaders(OpenMetrics& out, const std::vector<Object>& objects) {
  const auto each = [&](const auto& write) {
    for (const Object& one : objects) {
      if (!reads(one)) write(one);
    }
  };
  out.family("evenkeel_loader", Type::kInfo, "", "An open loader or range of chunks.");
  each([&](const Object& one) {
    const char* const kind = one.kind == LiveKind::kLoader ? "loader" : "chunks";
    out.sample(with(with(labels_of(one), "kind", kind), "batch", one.labels.batch), 1);
  });
  out.family("evenkeel_loader_batches", Type::kCounter, "", "Batches or chunks handed out.");
  each([&](const Object& one) { out.sample(labels_of(one), one.figures.batches); });
  out.family("evenkeel_loader_wait_seconds", Type::kCounter, "seconds",
             "Time that the program waited for batches or chunks.");
  each([&](const Object& one) { out.seconds(labels_of(one), one.figures.batch_wait_ns); });
}

}  // namespace

std::string metrics_text() {
  const LiveReport report = live_report();
  const ProcessFigures& process = report.process;
  OpenMetrics out;

  ReadFamilies of_process(out, "evenkeel_", ", by this process since it began.");
  of_process.add({}, process.work.reads);
  of_process.write();
  out.family("evenkeel_batches", Type::kCounter, "",
             "Batches and chunks handed out by this process since it began.");
  out.sample({}, process.work.batches);
  out.family("evenkeel_batch_wait_seconds", Type::kCounter, "seconds",
             "Time that this process waited for batches and chunks since it began.");
  out.seconds({}, process.work.batch_wait_ns);

  out.family("evenkeel_array", Type::kInfo, "", "An open array, token stream or set of weights.");
  ReadFamilies of_arrays(out, "evenkeel_array_", ", by one array since it was opened.");
  for (const Object& one : report.objects) {
    if (!reads(one)) continue;
    const char* const kind = one.kind == LiveKind::kWeights ? "weights" : "array";
    Labels facts = labels_of(one);
    facts.emplace_back("kind", kind);
    facts.emplace_back("files", std::to_string(one.labels.files));
    facts.emplace_back("format", one.labels.format);
    facts.emplace_back("engine", one.labels.engine);
    out.sample(facts, 1);
    of_arrays.add(labels_of(one), one.figures.reads);
  }
  of_arrays.write();
  write_loaders(out, report.objects);
  write_budgets(out, report.budgets);
  return std::move(out).end();
}

}  // namespace evenkeel
