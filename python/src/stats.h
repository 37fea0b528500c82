// Counters of an array or a loader as a dict.
#pragma once

#include <nanobind/nanobind.h>

#include "evenkeel/loader.h"

namespace evenkeel::python {

inline nanobind::dict dict_of(const ArrayStats& stats) {
  nanobind::dict dict;
  dict["cache_hits"] = stats.cache_hits;
  dict["cache_misses"] = stats.cache_misses;
  dict["cache_bytes"] = stats.cache_bytes;
  dict["bytes_from_cache"] = stats.bytes_from_cache;
  dict["bytes_from_page_cache"] = stats.bytes_from_page_cache;
  dict["bytes_from_disk"] = stats.bytes_from_disk;
  dict["requests"] = stats.requests;
  dict["in_flight"] = stats.in_flight;
  dict["wait_ns"] = stats.wait_ns;
  dict["bytes_from_network"] = stats.bytes_from_network;
  dict["retries"] = stats.retries;
  dict["hedges"] = stats.hedges;
  dict["bytes_from_disk_cache"] = stats.bytes_from_disk_cache;
  dict["bytes_from_mapping"] = stats.bytes_from_mapping;
  return dict;
}

inline nanobind::dict dict_of(const LoaderStats& stats) {
  nanobind::dict dict = dict_of(static_cast<const ArrayStats&>(stats));
  dict["batches"] = stats.batches;
  dict["batch_wait_ns"] = stats.batch_wait_ns;
  return dict;
}

}  // namespace evenkeel::python
