#include "engine/remote_cached.h"

#include <algorithm>
#include <cstring>

namespace evenkeel {

CachedRun::CachedRun(const Layout& layout, Transfers& transfers, DiskCache& cache,
                     const std::vector<std::string>& keys, std::span<std::byte> memory,
                     std::size_t in_flight, Feed& feed,
                     std::atomic<std::uint64_t>& bytes_from_cache)
    : layout_(layout),
      transfers_(transfers),
      cache_(cache),
      keys_(keys),
      memory_(memory),
      in_flight_(in_flight),
      feed_(feed),
      bytes_from_cache_(bytes_from_cache) {
  for (std::size_t slot = memory.size() / kSlot; slot-- > 1;) free_.push_back(slot);
}

std::size_t CachedRun::take_slot() {
  const std::size_t slot = free_.back();
  free_.pop_back();
  return slot;
}

void CachedRun::fill() {
  while (blocks_.size() < in_flight_) {
    if (!waiting_) {
      Extent extent;
      if (!feed_.next(extent)) return;
      waiting_ = extent;
    }
    if (!start(*waiting_)) return;
    waiting_.reset();
  }
}

bool CachedRun::start(const Extent& extent) {
  // Two blocks and a place for the bytes: with nothing under way there is room for them.
  if (free_.size() < 3) return false;
  const std::uint64_t size = layout_.segments[extent.file].identity.size;
  auto read = std::make_shared<Read>(Read{.extent = extent,
                                          .offset = extent.offset,
                                          .length = std::min(extent.length, size - extent.offset),
                                          .out = extent.into,
                                          .data = extent.into,
                                          .slot = std::nullopt,
                                          .missing = 0});
  if (!extent.into) {
    read->slot = take_slot();
    read->out = at(*read->slot);
    read->data = read->out;
  }
  const std::uint64_t last = (read->offset + read->length - 1) / DiskCache::kBlock;
  for (std::uint64_t number = read->offset / DiskCache::kBlock; number <= last; ++number) {
    const BlockName name{extent.file, number};
    const std::uint64_t begin = number * DiskCache::kBlock;
    const std::uint64_t length = std::min(DiskCache::kBlock, size - begin);
    auto found = blocks_.find(name);
    if (found == blocks_.end()) {
      const std::string& key = keys_[extent.file];
      if (!key.empty() && cache_.read(key, number, at(0)) == length) {
        bytes_from_cache_ += length;
        copy(*read, number, length, at(0) + DiskCache::kHeader);
        continue;
      }
      const std::size_t slot = take_slot();
      found = blocks_
                  .emplace(name, Block{slot,
                                       length,
                                       RangeTransfer(*layout_.segments[extent.file].remote, begin,
                                                     length, at(slot) + DiskCache::kHeader),
                                       {}})
                  .first;
      transfers_.start(found->second.transfer);
    }
    found->second.readers.push_back(read);
    ++read->missing;
  }
  if (read->missing == 0) finish(*read);
  return true;
}

void CachedRun::copy(const Read& read, std::uint64_t block, std::uint64_t length,
                     const std::byte* bytes) const {
  const std::uint64_t begin = block * DiskCache::kBlock;
  const std::uint64_t from = std::max(begin, read.offset);
  const std::uint64_t to = std::min(begin + length, read.offset + read.length);
  std::memcpy(read.out + (from - read.offset), bytes + (from - begin), to - from);
}

void CachedRun::finish(const Read& read) {
  feed_.arrived(read.extent, read.data);
  if (read.slot) free_.push_back(*read.slot);
}

void CachedRun::complete(Transfer* transfer) {
  const auto found = std::ranges::find_if(
      blocks_, [&](const auto& entry) { return &entry.second.transfer == transfer; });
  const auto [file, number] = found->first;
  auto node = blocks_.extract(found);
  Block& block = node.mapped();
  for (const std::shared_ptr<Read>& read : block.readers) {
    copy(*read, number, block.length, at(block.slot) + DiskCache::kHeader);
    if (--read->missing == 0) finish(*read);
  }
  if (!keys_[file].empty()) cache_.store(keys_[file], number, at(block.slot), block.length);
  free_.push_back(block.slot);
}

}  // namespace evenkeel
