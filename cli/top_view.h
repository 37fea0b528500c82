// What `evenkeel top` shows, computed from two readings of the pages.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "metrics/page.h"

namespace evenkeel::cli {

// A process between two readings. Without a first reading, shares and rates are unknown.
struct TopRow {
  SeenPage page;  // as read last
  std::string user, command;
  std::optional<double> bytes_per_second;  // from everywhere
  std::optional<double> hit_share;         // of lookups in caches; empty also if there were none
  // The share of the time that the program waited for data: for batches, or for reads if it has no
  // loader. More than 1 if several threads waited.
  std::optional<double> wait_share;
};

// Sorted by bytes per second. `user` and `command` are left empty.
std::vector<TopRow> rows_between(const std::vector<SeenPage>& before,
                                 const std::vector<SeenPage>& after, double seconds);

std::uint64_t bytes_read(const PageData& data);  // from everywhere
bool waits_for_batches(const PageData& data);    // what wait_share measures

// The lines of a table that is at most `columns` wide and, unless `lines` is 0, at most `lines`
// high.
std::vector<std::string> top_lines(const std::vector<TopRow>& rows, std::size_t columns,
                                   std::size_t lines);

}  // namespace evenkeel::cli
