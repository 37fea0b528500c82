// Pages, pictures and tables of a run with arbitrary texts and numbers.
#include <cstring>

#include "evenkeel/profile.h"
#include "fuzz/target.h"

namespace evenkeel::fuzz {
namespace {

std::string word(Input& input) { return std::string(input.text(40)); }

double any_double(Input& input) {
  const auto bits = input.number<std::uint64_t>();
  double value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

ProfileSample any_sample(Input& input) {
  ProfileSample sample;
  sample.seconds = input.flag() ? any_double(input) : static_cast<double>(input.upto(1000));
  for (auto* value :
       {&sample.anon, &sample.file, &sample.shmem, &sample.cache, &sample.disk_read}) {
    *value = input.any_size();
  }
  return sample;
}

ProfileRun any_run(Input& input) {
  ProfileRun run;
  run.name = word(input);
  run.command = {word(input), word(input)};
  run.ended = word(input);
  run.notes = {word(input)};
  run.facts = {{word(input), word(input)}};
  run.files = {{word(input), input.any_size(), std::nullopt}};
  run.seconds = static_cast<double>(input.upto(10'000));
  for (std::uint64_t count = input.upto(20); count > 0; --count) {
    run.samples.push_back(any_sample(input));
  }
  run.marks = {{any_double(input), word(input)}};
  return run;
}

std::size_t count(std::string_view text, std::string_view what) {
  std::size_t found = 0;
  for (std::size_t at = text.find(what); at != text.npos; at = text.find(what, at + 1)) ++found;
  return found;
}

// Coordinates and lengths inside tags are finite numbers.
void check_numbers(std::string_view picture) {
  while (true) {
    const std::size_t begin = picture.find('<');
    if (begin == picture.npos) return;
    picture.remove_prefix(begin);
    const std::string_view tag = picture.substr(0, picture.find('>'));
    MUST(tag.find("nan") == tag.npos && tag.find("inf") == tag.npos);
    picture.remove_prefix(tag.size());
  }
}

FUZZ_TARGET(report) {
  ProfileReport report;
  report.title = word(input);
  report.subtitle = word(input);
  report.kernel = word(input);
  report.growth = input.flag();
  if (input.flag()) report.budget = input.any_size();
  for (std::uint64_t runs = input.upto(3); runs > 0; --runs) report.runs.push_back(any_run(input));
  static const ProfileReport kPlain;
  static const std::string kPage = to_html(kPlain);
  const std::string page = to_html(report);
  for (const char* tag : {"<script", "</script", "<!--", "<img", "<svg"}) {
    MUST(count(page, tag) == count(kPage, tag));
  }
  const std::string picture = to_svg(report);
  MUST(count(picture, "<script") == 0);
  check_numbers(picture);
  const std::string json = to_json(report);
  for (const char c : json) MUST(static_cast<unsigned char>(c) >= ' ' || c == '\n');
  for (const ProfileRun& run : report.runs) {
    const std::string table = to_csv(run);
    MUST(table.find_first_not_of("abcdefghijklmnopqrstuvwxyz_0123456789,.+-\n") == table.npos);
    MUST(count(table, "\n") == run.samples.size() + 1);
  }
}

}  // namespace
}  // namespace evenkeel::fuzz
