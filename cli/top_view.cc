#include "cli/top_view.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "base/visible.h"
#include "cli/terminal.h"
#include "evenkeel/bytes.h"

namespace evenkeel::cli {
namespace {

// Counters that went back belong to another process, or are wrong: they count as no growth.
std::uint64_t growth(std::uint64_t before, std::uint64_t after) {
  return after > before ? after - before : 0;
}

std::optional<double> share(double part, double whole) {
  if (whole <= 0) return {};
  return part / whole;
}

TopRow row_between(const PageData* before, const SeenPage& page, double seconds) {
  TopRow row{.page = page,
             .user = {},
             .command = {},
             .bytes_per_second = {},
             .hit_share = {},
             .wait_share = {}};
  const PageData& now = page.data;
  const auto lookups = [](const PageData& data) { return data.cache_hits + data.cache_misses; };
  row.hit_share = share(static_cast<double>(now.cache_hits), static_cast<double>(lookups(now)));
  if (!before || seconds <= 0) return row;
  row.bytes_per_second =
      static_cast<double>(growth(bytes_read(*before), bytes_read(now))) / seconds;
  const std::uint64_t looked_up = growth(lookups(*before), lookups(now));
  if (looked_up > 0) {
    row.hit_share = share(static_cast<double>(growth(before->cache_hits, now.cache_hits)),
                          static_cast<double>(looked_up));
  }
  const std::uint64_t waited = waits_for_batches(now)
                                   ? growth(before->batch_wait_ns, now.batch_wait_ns)
                                   : growth(before->wait_ns, now.wait_ns);
  row.wait_share = static_cast<double>(waited) / 1e9 / seconds;
  return row;
}

std::string percent(const std::optional<double>& of_one) {
  if (!of_one) return "-";
  return fmt::format("{:.0f}%", std::min(*of_one * 100, 9999.0));
}

std::string megabytes(const std::optional<double>& bytes) {
  if (!bytes) return "-";
  return fmt::format("{:.{}f}", std::min(*bytes / 1e6, 9'999'999.0), *bytes < 99.95e6 ? 1 : 0);
}

std::string line_of(const std::string& pid, const std::string& user, const std::string& budget,
                    const std::string& in_use, const std::string& hits, const std::string& rate,
                    const std::string& wait, const std::string& command) {
  return fmt::format("{:>7} {:<8} {:>9} {:>9} {:>5} {:>8} {:>5}  {}", pid, first_columns(user, 8),
                     budget, in_use, hits, rate, wait, command);
}

}  // namespace

std::uint64_t bytes_read(const PageData& data) {
  return data.bytes_from_cache + data.bytes_from_mapping + data.bytes_from_page_cache +
         data.bytes_from_disk + data.bytes_from_network + data.bytes_from_disk_cache;
}

bool waits_for_batches(const PageData& data) { return data.loaders > 0 || data.batches > 0; }

std::vector<TopRow> rows_between(const std::vector<SeenPage>& before,
                                 const std::vector<SeenPage>& after, double seconds) {
  std::map<std::string, const PageData*> then;
  for (const SeenPage& page : before) then[page.file] = &page.data;
  std::vector<TopRow> rows;
  for (const SeenPage& page : after) {
    const auto found = then.find(page.file);
    rows.push_back(row_between(found == then.end() ? nullptr : found->second, page, seconds));
  }
  std::ranges::stable_sort(rows, [](const TopRow& a, const TopRow& b) {
    const double rate_a = a.bytes_per_second.value_or(0), rate_b = b.bytes_per_second.value_or(0);
    return rate_a != rate_b ? rate_a > rate_b : a.page.data.pid < b.page.data.pid;
  });
  return rows;
}

std::vector<std::string> top_lines(const std::vector<TopRow>& rows, std::size_t columns,
                                   std::size_t lines) {
  std::vector<std::string> text;
  const auto add = [&](const std::string& line) {
    text.push_back(first_columns(visible(line), columns));
  };
  std::uint64_t budget = 0, in_use = 0;
  double rate = 0;
  for (const TopRow& row : rows) {
    budget += row.page.data.limit;
    in_use += row.page.data.in_use;
    rate += row.bytes_per_second.value_or(0);
  }
  add(fmt::format("{} {}, {} of {} in use, {} MB/s", with_commas(rows.size()),
                  rows.size() == 1 ? "process" : "processes", format_size(in_use),
                  format_size(budget), megabytes(rate)));
  add("");
  add(line_of("PID", "USER", "BUDGET", "IN USE", "HITS", "MB/S", "WAIT", "COMMAND"));
  // The last line says how many do not fit.
  const std::size_t room = lines == 0 ? rows.size() : lines > text.size() ? lines - text.size() : 0;
  const std::size_t shown = rows.size() <= room ? rows.size() : room > 0 ? room - 1 : 0;
  for (std::size_t i = 0; i < shown; ++i) {
    const TopRow& row = rows[i];
    const PageData& data = row.page.data;
    const std::string pid = row.page.pid > 0 ? std::to_string(row.page.pid) : "-";
    add(line_of(pid, row.user, format_size(data.limit), format_size(data.in_use),
                percent(row.hit_share), megabytes(row.bytes_per_second), percent(row.wait_share),
                row.command));
  }
  if (shown < rows.size() && room > 0) add(fmt::format("and {} more", rows.size() - shown));
  if (rows.empty()) add("none of your processes uses Evenkeel now");
  return text;
}

}  // namespace evenkeel::cli
