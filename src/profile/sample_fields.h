// The numbers of a sample and their names, for loops over all of them.
#pragma once

#include <cstdint>
#include <string_view>

#include "evenkeel/profile.h"

namespace evenkeel {

struct SampleField {
  std::string_view name;
  std::uint64_t ProfileSample::*value;
};

inline constexpr SampleField kSampleSizes[] = {
    {"anon", &ProfileSample::anon},   {"file", &ProfileSample::file},
    {"shmem", &ProfileSample::shmem}, {"cache", &ProfileSample::cache},
    {"pss", &ProfileSample::pss},     {"page_tables", &ProfileSample::page_tables},
    {"swap", &ProfileSample::swap},   {"duplicate", &ProfileSample::duplicate},
};
struct SampleFlag {
  std::string_view name;
  bool ProfileSample::*value;
};
inline constexpr SampleFlag kSampleFlags[] = {
    {"cache_measured", &ProfileSample::cache_measured},
    {"pss_measured", &ProfileSample::pss_measured},
};
inline constexpr SampleField kSampleCounters[] = {
    {"disk_read", &ProfileSample::disk_read},
    {"major_faults", &ProfileSample::major_faults},
    {"minor_faults", &ProfileSample::minor_faults},
};

}  // namespace evenkeel
