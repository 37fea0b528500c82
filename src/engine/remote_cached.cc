#include "engine/remote_cached.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/checked.h"
#include "evenkeel/error.h"

namespace evenkeel {
namespace {

constexpr std::uint32_t kDiskDepth = 128, kDiskThreads = 16;

std::size_t slots_in(std::uint64_t bytes) { return bytes / 2 / CachedRun::kSlot; }

std::uint8_t this_minute() {
  return static_cast<std::uint8_t>(1 + sys::monotonic_ns() / 60'000'000'000 % 255);
}

std::uint64_t blocks_in(std::uint64_t bytes) { return divide_up(bytes, DiskCache::kBlock); }

}  // namespace

CacheOfProcess::CacheOfProcess(const Layout& layout, const std::string& spec,
                               std::span<std::byte> memory, std::uint64_t known)
    : cache(parse_disk_cache(spec).folder, parse_disk_cache(spec).limit), known_(known) {
  std::string why_not;
  queue = make_uring_queue(kDiskDepth, memory, 0, why_not);
  if (!queue) queue = make_thread_queue(kDiskThreads);
  std::uint64_t blocks = 0;
  for (const Segment& segment : layout.segments) {
    first_.push_back(blocks);
    blocks += blocks_in(segment.identity.size);
  }
}

std::uint64_t CacheOfProcess::blocks_of(const Layout& layout) {
  std::uint64_t blocks = 0;
  for (const Segment& segment : layout.segments) blocks += blocks_in(segment.identity.size);
  return blocks;
}

std::uint8_t* CacheOfProcess::entry(std::uint32_t file, std::uint64_t block) {
  const std::uint64_t number = first_[file] + block;
  return number < known_.size() ? &known_[number] : nullptr;
}

bool CacheOfProcess::knows(std::uint32_t file, std::uint64_t block) const {
  const std::uint64_t number = first_[file] + block;
  return number < known_.size() && known_[number] != 0;
}

void CacheOfProcess::note(std::uint32_t file, std::uint64_t block) {
  if (std::uint8_t* const found = entry(file, block)) *found = this_minute();
}

void CacheOfProcess::forget(std::uint32_t file, std::uint64_t block) {
  if (std::uint8_t* const found = entry(file, block)) *found = 0;
}

void CacheOfProcess::touch(std::uint32_t file, std::uint64_t block, int fd) {
  std::uint8_t* const found = entry(file, block);
  if (!found || *found == this_minute()) return;
  *found = this_minute();
  DiskCache::touch(fd);
}

void CacheOfProcess::replace_broken_queue() {
  queue->abandon();
  queue = make_thread_queue(kDiskThreads);
}

CachedRun::CachedRun(const Layout& layout, Transfers& transfers, CacheOfProcess& cache,
                     const std::vector<std::string>& keys, std::span<std::byte> memory,
                     std::size_t in_flight, Feed& feed,
                     std::atomic<std::uint64_t>& bytes_from_cache,
                     std::atomic<std::uint64_t>& wait_ns)
    : layout_(layout),
      transfers_(transfers),
      cache_(cache),
      alignment_(cache.cache.alignment()),
      keys_(keys),
      memory_(memory),
      parts_(memory.data() + slots_in(memory.size()) * kSlot),
      in_flight_(in_flight),
      feed_(feed),
      bytes_from_cache_(bytes_from_cache),
      wait_ns_(wait_ns),
      arena_(memory.size() - slots_in(memory.size()) * kSlot),
      disk_(kDiskDepth) {
  for (std::size_t slot = slots_in(memory.size()); slot-- > 0;) free_.push_back(slot);
  for (std::uint32_t id = cache.queue->depth(); id-- > 0;) free_ids_.push_back(id);
}

// Waits for reads in flight: the kernel may still be writing into `memory_`.
CachedRun::~CachedRun() {
  try {
    Completion completions[kDiskDepth];
    while (disk_in_flight_ > 0) disk_in_flight_ -= cache_.queue->wait(1, completions);
  } catch (...) {
    cache_.replace_broken_queue();
  }
}

void CachedRun::fill() {
  while (!homeless_.empty() && place(homeless_.front())) homeless_.pop_front();
  while (homeless_.empty()) {
    if (!waiting_) {
      Extent extent;
      if (!feed_.next(extent)) return;
      waiting_ = extent;
    }
    if (!start(*waiting_)) return;
    waiting_.reset();
  }
}

// Returns false if there is no room for it yet. If nothing is in progress there is always room:
// three slots, and as much arena for the parts of two blocks and the memory where they are joined.
bool CachedRun::start(const Extent& extent) {
  if (free_ids_.size() < std::min<std::size_t>(2, cache_.queue->depth())) return false;
  const std::uint64_t size = layout_.segments[extent.file].identity.size;
  auto read = std::make_shared<Read>();
  read->extent = extent;
  read->offset = extent.offset;
  read->length = std::min(extent.length, size - extent.offset);
  const std::uint64_t first = read->offset / DiskCache::kBlock;
  const std::uint64_t last = (read->offset + read->length - 1) / DiskCache::kBlock;
  std::optional<RingArena::Piece> room[3];  // for two parts, and for the joined bytes
  const auto give_back = [&] {
    for (const auto& one : room) {
      if (one) arena_.give_back(one->ticket);
    }
    return false;
  };
  read->in_place = extent.into != nullptr;
  read->out = extent.into;
  if (first != last && !read->out) {
    room[2] = arena_.take(round_up(extent.length, alignment_));
    if (!room[2]) return false;
    read->out = parts_ + room[2]->begin;
    read->ticket = room[2]->ticket;
  }
  Piece pieces[2];
  bool known[2] = {};
  for (std::uint64_t number = first; number <= last; ++number) {
    Piece& piece = pieces[number - first];
    piece = {read, {extent.file, number}, number * DiskCache::kBlock, 0};
    piece.to = std::min(piece.from + DiskCache::kBlock, read->offset + read->length);
    piece.from = std::max(piece.from, read->offset);
    ++read->missing;
    known[number - first] = cache_.knows(extent.file, number) && !blocks_.contains(piece.name);
    if (!known[number - first] || read->in_place) continue;
    auto& part = room[number - first];
    part = arena_.take(part_of(piece).length);
    if (!part) return give_back();
  }
  for (std::uint64_t number = first; number <= last; ++number) {
    const Piece& piece = pieces[number - first];
    const auto& part = room[number - first];
    if (part && read_part(piece, parts_ + part->begin, part->ticket)) continue;
    if (known[number - first] && read->in_place) {
      const std::uint64_t begin = number * DiskCache::kBlock + part_of(piece).begin;
      if (read_part(piece, extent.into + (begin - extent.offset), {})) continue;
    }
    if (!homeless_.empty() || !place(piece)) homeless_.push_back(piece);
  }
  return true;
}

// The aligned part of the block that is read for a piece.
CachedRun::Part CachedRun::part_of(const Piece& piece) const {
  const std::uint64_t block = piece.name.second * DiskCache::kBlock;
  const std::uint64_t begin = round_down(piece.from - block, alignment_);
  return {begin, round_up(piece.to - block, alignment_) - begin};
}

// Starts reading that part. Returns false if the block is gone or the queue is full; the memory of
// `ticket` is then back in the arena.
bool CachedRun::read_part(const Piece& piece, std::byte* buffer,
                          std::optional<std::uint64_t> ticket) {
  const auto [file, number] = piece.name;
  const Part part = part_of(piece);
  DiskRead read;
  const bool full = free_ids_.empty();
  if (!full) read.fd = cache_.cache.open(key(piece.name), number, read.direct);
  if (!read.fd) {
    if (!full) cache_.forget(file, number);
    if (ticket) arena_.give_back(*ticket);
    return false;
  }
  read.name = piece.name;
  read.piece = piece;
  read.buffer = buffer;
  read.length = part.length;
  read.begin = number * DiskCache::kBlock + part.begin;
  read.ticket = ticket;
  cache_.touch(file, number, read.fd.get());
  push(std::move(read), DiskCache::kHeader + part.begin);
  return true;
}

// Adds the piece to its block, and starts reading or fetching the block if necessary. Returns false
// if there is no room yet.
bool CachedRun::place(const Piece& piece) {
  const auto [file, number] = piece.name;
  auto found = blocks_.find(piece.name);
  if (found == blocks_.end()) {
    if (free_.empty() || free_ids_.empty() || fetching_ >= in_flight_) return false;
    const std::size_t slot = free_.back();
    const std::uint64_t begin = number * DiskCache::kBlock;
    const std::uint64_t length =
        std::min(DiskCache::kBlock, layout_.segments[file].identity.size - begin);
    found = blocks_
                .emplace(piece.name,
                         Block{.slot = slot,
                               .length = length,
                               .transfer = RangeTransfer(*layout_.segments[file].remote, begin,
                                                         length, at(slot) + DiskCache::kHeader),
                               .pieces = {}})
                .first;
    free_.pop_back();
    DiskRead read;
    read.name = piece.name;
    read.buffer = at(slot);
    read.length = DiskCache::kHeader + round_up(length, DiskCache::kHeader);
    if (!key(piece.name).empty()) read.fd = cache_.cache.open(key(piece.name), number, read.direct);
    if (read.fd) {
      push(std::move(read), 0);
    } else {
      fetch(found->second);
    }
  }
  found->second.pieces.push_back(piece);
  return true;
}

void CachedRun::fetch(Block& block) {
  block.fetching = true;
  ++fetching_;
  transfers_.start(block.transfer);
}

// `bytes` are the bytes of the piece.
void CachedRun::deliver(const Piece& piece, const std::byte* bytes) {
  Read& read = *piece.read;
  if (!read.out) {
    feed_.arrived(read.extent, bytes);
    return;
  }
  std::byte* const out = read.out + (piece.from - read.offset);
  if (out != bytes) std::memcpy(out, bytes, piece.to - piece.from);
  if (--read.missing > 0) return;
  feed_.arrived(read.extent, read.out);
  if (read.ticket) arena_.give_back(*read.ticket);
}

void CachedRun::finish_block(BlockName name, BlockSource source) {
  auto node = blocks_.extract(name);
  Block& block = node.mapped();
  const std::byte* const bytes = at(block.slot) + DiskCache::kHeader;
  for (const Piece& piece : block.pieces) {
    deliver(piece, bytes + (piece.from - name.second * DiskCache::kBlock));
  }
  bool kept = source == BlockSource::kDisk;
  if (source == BlockSource::kServer) {
    --fetching_;
    if (!key(name).empty())
      kept = cache_.cache.store(key(name), name.second, at(block.slot), block.length);
  }
  if (kept) cache_.note(name.first, name.second);
  free_.push_back(block.slot);
}

void CachedRun::push(DiskRead read, std::uint64_t offset) {
  const std::uint32_t id = free_ids_.back();
  free_ids_.pop_back();
  ++disk_in_flight_;
  cache_.queue->push(
      {read.fd.get(), 0, id, read.buffer, static_cast<std::uint32_t>(read.length), offset});
  disk_[id] = std::move(read);
}

void CachedRun::wait(bool busy) {
  const bool fetching = transfers_.active() > 0;
  if (disk_in_flight_ > 0) {
    take_disk(fetching || busy ? 0 : std::clamp<std::size_t>(disk_in_flight_ / 4, 1, 16));
  }
  if (!fetching) return;
  {
    const WaitTime waiting(wait_ns_);
    transfers_.wait(busy || disk_in_flight_ > 0 ? 1 : 50, done_);
  }
  for (const Transfer* transfer : done_) {
    const auto found = std::ranges::find_if(
        blocks_, [&](const auto& entry) { return &entry.second.transfer == transfer; });
    finish_block(found->first, BlockSource::kServer);
  }
  done_.clear();
}

void CachedRun::take_disk(std::size_t enough) {
  Completion completions[kDiskDepth];
  std::size_t count = 0;
  try {
    const WaitTime waiting(wait_ns_);
    count = cache_.queue->wait(enough, completions);
    disk_in_flight_ -= count;
  } catch (const Error&) {  // the queue itself failed: treat every read in flight as failed
    cache_.replace_broken_queue();
    disk_in_flight_ = 0;
    free_ids_.clear();
    for (std::uint32_t id = 0; id < disk_.size(); ++id) {
      if (disk_[id].fd)
        completions[count++] = {id, -EIO};
      else if (id < cache_.queue->depth())
        free_ids_.push_back(id);
    }
  }
  for (std::size_t i = 0; i < count; ++i) complete_disk(completions[i].id, completions[i].result);
}

void CachedRun::complete_disk(std::uint32_t id, std::int64_t result) {
  const DiskRead read = std::exchange(disk_[id], {});
  if (id < cache_.queue->depth()) free_ids_.push_back(id);
  if (!read.direct) (void)sys::fadvise(read.fd.get(), 0, 0, POSIX_FADV_DONTNEED);
  const bool whole = result >= 0 && static_cast<std::uint64_t>(result) == read.length;
  if (read.piece) {
    if (whole) {
      bytes_from_cache_ += read.length;
      deliver(*read.piece, read.buffer + (read.piece->from - read.begin));
    } else {
      cache_.forget(read.name.first, read.name.second);
      homeless_.push_back(*read.piece);
    }
    if (read.ticket) arena_.give_back(*read.ticket);
    return;
  }
  Block& block = blocks_.at(read.name);
  DiskCache& cache = cache_.cache;
  const std::string& name = key(read.name);
  // A read that came back short or failed is repeated: the file need not be damaged.
  const std::uint64_t length = whole
                                   ? cache.check(name, read.name.second, {read.buffer, read.length})
                                   : cache.read(name, read.name.second, read.buffer);
  if (length != block.length) {
    fetch(block);
    return;
  }
  if (whole) DiskCache::touch(read.fd.get());  // `cache.read` does that itself
  bytes_from_cache_ += read.length;
  finish_block(read.name, BlockSource::kDisk);
}

}  // namespace evenkeel
