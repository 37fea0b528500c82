#include <algorithm>

#include "evenkeel/array.h"
#include "evenkeel/bytes.h"
#include "evenkeel/prepare.h"
#include "prepare/byte_reader.h"
#include "write/checksums.h"
#include "write/output_file.h"

namespace evenkeel {
namespace {

// Calls use(checksum) for each block of a file. Returns the size of the file.
template <class Use>
std::uint64_t each_checksum(const std::string& path, std::uint64_t block_bytes,
                            const VerifyOptions& options, Use use) {
  ArrayOptions reading;
  reading.budget = options.budget;
  reading.cache = 0;
  const Array file = open_bytes(path, identify_file(path), reading);
  if (file.bytes() == 0) return 0;
  std::uint64_t done = 0;
  for (const Chunk& chunk : file.chunks(block_bytes)) {
    use(xxh3(chunk.bytes()));
    done += chunk.size();
    if (options.progress) options.progress({"reading", done, file.bytes()});
  }
  return file.bytes();
}

std::string range_text(const BadRange& range) {
  return "bytes " + with_commas(range.begin) + " to " + with_commas(range.end);
}

}  // namespace

VerifyReport verify(const std::string& path, const VerifyOptions& options) {
  const Checksums wanted = Checksums::read(Checksums::path_of(path));
  VerifyReport report;
  const auto bad = [&](std::uint64_t begin, std::uint64_t end) {
    if (!report.first_bad) {
      report.first_bad = BadRange{begin, end};
    } else if (report.first_bad->end == begin) {
      report.first_bad->end = end;
    }
  };
  report.bytes = each_checksum(path, wanted.block_bytes, options, [&](std::uint64_t checksum) {
    const std::uint64_t number = report.blocks++;
    if (number >= wanted.blocks.size() || checksum == wanted.blocks[number]) return;
    ++report.bad_blocks;
    const std::uint64_t begin = number * wanted.block_bytes;
    bad(begin, std::min(begin + wanted.block_bytes, wanted.file_bytes));
  });
  if (report.bytes != wanted.file_bytes) {
    bad(std::min(report.bytes, wanted.file_bytes), std::max(report.bytes, wanted.file_bytes));
    report.problem = "the file has " + with_commas(report.bytes) + " bytes; it had " +
                     with_commas(wanted.file_bytes) + " when its checksums were computed";
  }
  if (report.bad_blocks > 0) {
    report.problem += (report.problem.empty() ? "" : "; ") + with_commas(report.bad_blocks) +
                      (report.bad_blocks == 1 ? " block differs" : " blocks differ");
  }
  if (report.first_bad) report.problem += "; first bad: " + range_text(*report.first_bad);
  return report;
}

VerifyReport write_checksums(const std::string& path, const VerifyOptions& options) {
  Checksums made;
  made.file_bytes = each_checksum(path, kChecksumBlock, options,
                                  [&](std::uint64_t checksum) { made.blocks.push_back(checksum); });
  replace_file(Checksums::path_of(path), made.text());
  return {.bytes = made.file_bytes, .blocks = made.blocks.size()};
}

}  // namespace evenkeel
