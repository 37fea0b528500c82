#include "write/checksums.h"

#include <algorithm>
#include <charconv>

#include "base/checked.h"
#include "base/text_file.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"

namespace evenkeel {
namespace {

constexpr std::string_view kChecksumsMagic = "evenkeel xxh3 1";

}  // namespace

Checksums Checksums::read(const std::string& path) {
  const auto all = read_text_file(path);
  if (!all) {
    const int code = errno;
    throw Error::system("read checksums", code)
        .in(path)
        .hint("`evenkeel verify --write FILE` computes them for a file that is known to be good");
  }
  const auto wrong = [&](const std::string& what) {
    return Error(ErrorKind::kFormat, "read checksums", what)
        .in(path)
        .hint("compute them again for a good file: evenkeel verify --write FILE");
  };
  std::string_view text = *all, line;
  if (!take_line(text, line) || line != kChecksumsMagic) {
    throw wrong("it does not begin with \"" + std::string(kChecksumsMagic) + "\"");
  }
  Checksums checksums;
  if (!take_line(text, line)) throw wrong("it ends after the first line");
  const auto block = leading_number(line);
  const std::size_t blank = line.find(' ');
  const auto size =
      blank == std::string_view::npos ? std::nullopt : leading_number(line.substr(blank));
  if (!block || !size || *block == 0) throw wrong("the second line must be two numbers");
  checksums.block_bytes = *block;
  checksums.file_bytes = *size;
  while (take_line(text, line)) {
    std::uint64_t value = 0;
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), value, 16);
    if (error != std::errc{} || line.size() != 16 || end != line.data() + 16) {
      throw wrong("line " + with_commas(checksums.blocks.size() + 3) + " is not a checksum");
    }
    checksums.blocks.push_back(value);
  }
  const std::uint64_t expected = divide_up(*size, *block);
  if (checksums.blocks.size() != expected) {
    throw wrong("it has " + with_commas(checksums.blocks.size()) + " checksums; a file of " +
                with_commas(*size) + " bytes has " + with_commas(expected) + " blocks");
  }
  return checksums;
}

std::string Checksums::text() const {
  std::string all(kChecksumsMagic);
  all += "\n" + std::to_string(block_bytes) + " " + std::to_string(file_bytes) + "\n";
  all.reserve(all.size() + blocks.size() * 17);
  for (const std::uint64_t value : blocks) {
    char digits[17];
    const auto [end, error] = std::to_chars(digits, digits + 16, value, 16);
    all.append(static_cast<std::size_t>(16 - (end - digits)), '0').append(digits, end) += '\n';
  }
  return all;
}

void RunningChecksums::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::uint64_t left = kChecksumBlock - end_ % kChecksumBlock;
    const auto now = bytes.first(std::min<std::uint64_t>(left, bytes.size()));
    hash_.append(now);
    end_ += now.size();
    bytes = bytes.subspan(now.size());
    if (now.size() < left) break;
    const std::uint64_t block = end_ / kChecksumBlock - 1;
    if (blocks_.size() <= block) {
      blocks_.resize(block + 1);
      stale_.resize(block + 1);
    }
    blocks_[block] = hash_.hash();
    hash_.reset();
  }
}

void RunningChecksums::mark(std::uint64_t block) {
  if (blocks_.size() <= block) {
    blocks_.resize(block + 1);
    stale_.resize(block + 1);
  }
  stale_[block] = true;
}

void RunningChecksums::change(std::uint64_t offset, std::uint64_t length) {
  if (length == 0) return;
  const std::uint64_t end = offset + length;
  // If the change goes beyond the end, the block with the old end has bytes that were not hashed.
  for (std::uint64_t block = std::min(offset, end > end_ ? end_ : offset) / kChecksumBlock;
       block <= (end - 1) / kChecksumBlock; ++block) {
    mark(block);
  }
  if (end <= end_) return;
  end_ = end;
  if (end_ % kChecksumBlock != 0) mark(end_ / kChecksumBlock);
  hash_.reset();
}

Checksums RunningChecksums::finish(
    std::uint64_t file_bytes, const std::function<std::uint64_t(std::uint64_t block)>& checksum) {
  const std::uint64_t count = divide_up(file_bytes, kChecksumBlock);
  if (file_bytes % kChecksumBlock != 0) mark(count - 1);
  blocks_.resize(count);
  stale_.resize(count);
  for (std::uint64_t block = 0; block < count; ++block) {
    if (stale_[block]) blocks_[block] = checksum(block);
  }
  return {file_bytes, kChecksumBlock, std::move(blocks_)};
}

}  // namespace evenkeel
