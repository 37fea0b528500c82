// What `evenkeel top` shows, made of what was read of pages at two times.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "metrics/page.h"

namespace evenkeel::cli {

// A process between two readings. Without the first, shares and rates are unknown.
struct TopRow {
  SeenPage page;  // as read last
  std::string user, command;
  std::optional<double> bytes_per_second;  // from everywhere
  std::optional<double> hit_share;         // of lookups in caches; empty also where there were none
  // Of the time, that the program waited for data: for batches, or if it has no loader, for reads;
  // more than 1 where several threads did.
  std::optional<double> wait_share;
};

// Sorted by bytes a second. `user` and `command` are left empty.
std::vector<TopRow> rows_between(const std::vector<SeenPage>& before,
                                 const std::vector<SeenPage>& after, double seconds);

std::uint64_t bytes_read(const PageData& data);  // from everywhere
bool waits_for_batches(const PageData& data);    // what wait_share is about

// The lines of a table that is no wider than `columns`, and no higher than `lines` where that is
// not 0.
std::vector<std::string> top_lines(const std::vector<TopRow>& rows, std::size_t columns,
                                   std::size_t lines);

}  // namespace evenkeel::cli
