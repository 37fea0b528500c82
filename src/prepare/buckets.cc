#include "prepare/buckets.h"

#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/checked.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"

namespace evenkeel {
namespace {

Error damaged(const std::string& path) {
  return Error(ErrorKind::kFormat, "resume", "the checkpoint is damaged")
      .in(path)
      .hint("begin again without resume");
}

class NumberText {
 public:
  NumberText(const std::string& text, std::string path)
      : at_(text.data()), end_(at_ + text.size()), path_(std::move(path)) {}
  std::uint64_t next() {
    while (at_ < end_ && *at_ == ' ') ++at_;
    std::uint64_t number = 0;
    const auto [stop, error] = std::from_chars(at_, end_, number);
    if (error != std::errc{}) throw damaged(path_);
    at_ = stop;
    return number;
  }

 private:
  const char* at_;
  const char* const end_;
  const std::string path_;
};

}  // namespace

std::string scratch_file(const std::string& output, const std::string& folder,
                         std::string_view ending) {
  if (folder.empty()) return output + std::string(ending);
  return folder + "/" + output.substr(output.rfind('/') + 1) + std::string(ending);
}

void require_room(std::string_view operation, const std::string& scratch, std::uint64_t bytes) {
  const std::size_t slash = scratch.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : scratch.substr(0, slash + 1);
  struct statvfs disk {};
  if (::statvfs(folder.c_str(), &disk) != 0) return;
  const std::uint64_t free = static_cast<std::uint64_t>(disk.f_bavail) * disk.f_frsize;
  if (free >= bytes) return;
  throw Error::system(std::string(operation), ENOSPC,
                      "the scratch file needs " + format_size(bytes) + ", but the disk has " +
                          format_size(free) + " free")
      .in(scratch)
      .hint("free some space, or name a folder on another disk with --scratch");
}

Buckets::Buckets(const std::string& path, bool resume) : file_(path, resume) {
  if (checkpoint()) read_numbers(checkpoint()->numbers);
}

Buckets::Buckets(const std::string& path, std::uint64_t first, std::uint64_t end)
    : file_(path, OutputFile::ReadOnly{}) {
  if (!checkpoint()) throw damaged(path);
  read_numbers(checkpoint()->numbers);
  if (first > end || end > buckets_.size()) throw damaged(path);
  const auto at = [&](std::uint64_t bucket) {
    return buckets_.begin() + static_cast<std::ptrdiff_t>(bucket);
  };
  buckets_ = {std::make_move_iterator(at(first)), std::make_move_iterator(at(end))};
  first_ = first;
}

std::uint64_t Buckets::index_bytes() const {
  std::uint64_t bytes = buckets_.size() * sizeof(Bucket);
  for (const Bucket& bucket : buckets_) bytes += bucket.extents.size() * sizeof(std::uint64_t);
  return bytes;
}

void Buckets::begin(const Budget& budget, const BucketSize& size) {
  if (!checkpoint()) {
    size_ = size;
    buckets_.resize(size.buckets);
  }
  queue_ = std::make_unique<WriteQueue>(
      file_, budget, QueueSize{size_.block_bytes, size_.buckets + kSpareBlocks, kThreads});
  for (Bucket& bucket : buckets_) {
    bucket.block = queue_->take();
    bucket.fill = bucket.bytes % size_.block_bytes;
    if (bucket.fill == 0) continue;
    const std::uint64_t begin = bucket.bytes - bucket.fill;
    file_.read(place_of(bucket, begin),
               {bucket.block, round_up(bucket.fill, OutputFile::kAlignment)});
  }
}

std::uint64_t Buckets::place_of(Bucket& bucket, std::uint64_t offset) {
  const std::uint64_t number = offset / extent_bytes();
  if (number == bucket.extents.size()) {
    bucket.extents.push_back(extents_++ * extent_bytes());
    const std::uint64_t end = extents_ * extent_bytes();
    file_.allocate(end, round_up(end, 1_MiB));
  }
  return bucket.extents[number] + offset % extent_bytes();
}

void Buckets::write_block(Bucket& bucket) {
  const std::uint64_t place = place_of(bucket, bucket.bytes - bucket.fill);
  queue_->submit(bucket.block, place, size_.block_bytes);
  bucket.block = queue_->take();
  bucket.fill = 0;
}

void Buckets::add(std::uint64_t number, std::span<const std::byte> head,
                  std::span<const std::byte> body) {
  Bucket& bucket = buckets_[number];
  const std::uint64_t both = head.size() + body.size();
  if (both >= size_.block_bytes - bucket.fill) {
    add(number, head);
    return add(number, body);
  }
  std::memcpy(bucket.block + bucket.fill, head.data(), head.size());
  std::memcpy(bucket.block + bucket.fill + head.size(), body.data(), body.size());
  bucket.fill += both;
  bucket.bytes += both;
  // Where the next item of this bucket goes: by then, other buckets have taken the cache.
  const std::byte* const next = bucket.block + bucket.fill;
  for (std::size_t line = 0; line < 3; ++line) __builtin_prefetch(next + 64 * line, 1);
}

void Buckets::add(std::uint64_t number, std::span<const std::byte> bytes) {
  Bucket& bucket = buckets_[number];
  while (!bytes.empty()) {
    const std::uint64_t now =
        std::min<std::uint64_t>(bytes.size(), size_.block_bytes - bucket.fill);
    std::memcpy(bucket.block + bucket.fill, bytes.data(), now);
    bucket.fill += now;
    bucket.bytes += now;
    bytes = bytes.subspan(now);
    if (bucket.fill == size_.block_bytes) write_block(bucket);
  }
}

void Buckets::save(const std::string& kind, const std::string& state) {
  queue_->drain();
  // Blocks that are not full are written now, and again when they are full.
  for (Bucket& bucket : buckets_) {
    if (bucket.fill == 0) continue;
    const std::uint64_t length = round_up(bucket.fill, OutputFile::kAlignment);
    std::memset(bucket.block + bucket.fill, 0, length - bucket.fill);
    file_.write(place_of(bucket, bucket.bytes - bucket.fill), {bucket.block, length});
  }
  const std::uint64_t end = extents_ * extent_bytes();
  file_.resize(end);
  queue_->sync();
  file_.save({end, kind, numbers(), state});
}

void Buckets::end_adding() {
  queue_.reset();
  for (Bucket& bucket : buckets_) bucket.block = nullptr;
}

std::string Buckets::numbers() const {
  // A leading 0 means that the number of blocks of an extent follows. Without it, there are 16.
  std::string text = "0 " + std::to_string(size_.extent_blocks) + " " +
                     std::to_string(size_.buckets) + " " + std::to_string(size_.block_bytes) + " " +
                     std::to_string(extents_);
  for (const Bucket& bucket : buckets_) {
    text += " " + std::to_string(bucket.bytes) + " " + std::to_string(bucket.extents.size());
    for (const std::uint64_t extent : bucket.extents) {
      text += " " + std::to_string(extent / extent_bytes());
    }
  }
  return text;
}

void Buckets::read_numbers(const std::string& text) {
  NumberText numbers(text, file_.path());
  size_ = {};
  size_.buckets = numbers.next();
  if (size_.buckets == 0) {
    size_.extent_blocks = numbers.next();
    size_.buckets = numbers.next();
  }
  size_.block_bytes = numbers.next();
  extents_ = numbers.next();
  if (size_.buckets > text.size() || size_.block_bytes < OutputFile::kAlignment ||
      size_.block_bytes > std::uint64_t{1} << 30 || extents_ > text.size() ||
      size_.extent_blocks == 0 || size_.extent_blocks > 16) {
    throw damaged(file_.path());
  }
  buckets_.resize(size_.buckets);
  for (Bucket& bucket : buckets_) {
    bucket.bytes = numbers.next();
    const std::uint64_t count = numbers.next();
    if (count > extents_ || bucket.bytes > count * extent_bytes()) throw damaged(file_.path());
    for (std::uint64_t i = 0; i < count; ++i) {
      bucket.extents.push_back(numbers.next() * extent_bytes());
    }
  }
}

std::uint64_t Buckets::read(std::uint64_t number, std::uint64_t offset, std::span<std::byte> out) {
  const Bucket& bucket = buckets_[number - first_];
  const std::uint64_t left = offset < bucket.bytes ? bucket.bytes - offset : 0;
  const std::uint64_t wanted = std::min<std::uint64_t>(left, out.size());
  for (std::uint64_t done = 0; done < wanted;) {
    const std::uint64_t at = offset + done, in_extent = at % extent_bytes();
    const std::uint64_t now = std::min(wanted - done, extent_bytes() - in_extent);
    file_.read(bucket.extents[at / extent_bytes()] + in_extent,
               out.subspan(done, round_up(now, OutputFile::kAlignment)));
    done += now;
  }
  return wanted;
}

void Buckets::free(std::uint64_t number) {
  for (const std::uint64_t extent : buckets_[number].extents) file_.punch(extent, extent_bytes());
}

}  // namespace evenkeel
