#include <charconv>
#include <cmath>

#include "evenkeel/profile.h"
#include "profile/sample_fields.h"

namespace evenkeel {
namespace {

void add_seconds(std::string& line, double seconds) {
  if (!std::isfinite(seconds)) return;
  char digits[32];
  const double micro = std::round(seconds * 1e6) / 1e6;
  line.append(digits, std::to_chars(digits, digits + sizeof digits, micro).ptr);
}

void add_field(std::string& line, std::uint64_t value) {
  line += ',';
  if (value != ProfileSample::kUnknown) line += std::to_string(value);
}

}  // namespace

std::string to_csv(const ProfileRun& run) {
  std::string text = "seconds";
  for (const SampleField& field : kSampleSizes) text.append(",").append(field.name);
  for (const SampleField& field : kSampleCounters) text.append(",").append(field.name);
  for (const SampleFlag& flag : kSampleFlags) text.append(",").append(flag.name);
  text += ",cpu_seconds,processes\n";
  for (const ProfileSample& sample : run.samples) {
    add_seconds(text, sample.seconds);
    for (const SampleField& field : kSampleSizes) add_field(text, sample.*field.value);
    for (const SampleField& field : kSampleCounters) add_field(text, sample.*field.value);
    for (const SampleFlag& flag : kSampleFlags) add_field(text, sample.*flag.value);
    text += ',';
    add_seconds(text, sample.cpu_seconds);
    add_field(text, sample.processes);
    text += '\n';
  }
  return text;
}

}  // namespace evenkeel
