#include "prepare/sorted_buckets.h"

#include <algorithm>
#include <cstring>

#include "base/thread.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"

namespace evenkeel {
namespace {

// The first key of a bucket: bucket_of(first_key) == bucket, and that of the key before is not.
std::uint64_t first_key(std::uint64_t bucket, std::uint64_t buckets) {
  const auto wide = (static_cast<unsigned __int128>(bucket) << 64) + buckets - 1;
  return static_cast<std::uint64_t>(wide / buckets);
}

}  // namespace

SortedBuckets::SortedBuckets(Buckets& buckets, const Budget& budget, std::uint64_t part_bytes,
                             ShuffleKeys keys, std::uint64_t item_bytes, std::uint64_t from)
    : buckets_(buckets),
      keys_(keys),
      item_bytes_(item_bytes),
      from_(from),
      window_(budget, kWindow, "a window of the scratch file") {
  for (Arena& arena : arenas_) arena.memory = PageBuffer(budget, part_bytes, "items to sort");
  thread_ = start_thread([this] { work(); });
}

SortedBuckets::~SortedBuckets() {
  {
    const MutexLock lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void SortedBuckets::work() {
  try {
    const std::uint64_t count = buckets_.size().buckets;
    unsigned turn = 0;
    for (std::uint64_t bucket = ShuffleKeys::bucket_of(from_, count); bucket < count; ++bucket) {
      std::uint64_t from = std::max(from_, first_key(bucket, count));
      const std::uint64_t end = bucket + 1 == count ? UINT64_MAX : first_key(bucket + 1, count) - 1;
      for (bool done = false; !done;) {
        Arena& arena = arenas_[turn % 2];
        {
          const MutexLock lock(mutex_);
          while (arena.ready && !ending_) changed_.wait(mutex_);
          if (ending_) return;
        }
        std::uint64_t last = end;
        while (!load(arena, bucket, from, last)) last = from + (last - from) / 2;
        sort(arena);
        done = last == end;
        arena.last = done && bucket + 1 == count;
        arena.next_key.reset();
        if (!arena.last) arena.next_key = last + 1;
        from = last + 1;
        ++turn;
        {
          const MutexLock lock(mutex_);
          arena.ready = true;
        }
        changed_.notify_all();
      }
    }
  } catch (...) {
    {
      const MutexLock lock(mutex_);
      error_ = std::current_exception();
    }
    changed_.notify_all();
  }
}

bool SortedBuckets::load(Arena& arena, std::uint64_t bucket, std::uint64_t from,
                         std::uint64_t last) {
  std::byte* const begin = arena.memory.data();
  const std::uint64_t head =
      StoredItem::kNumberBytes + (item_bytes_ > 0 ? 0 : StoredItem::kLengthBytes);
  std::uint64_t used = 0, room = arena.memory.size();
  auto* entry = reinterpret_cast<Entry*>(begin + room / sizeof(Entry) * sizeof(Entry));
  room = static_cast<std::uint64_t>(reinterpret_cast<std::byte*>(entry) - begin);
  Entry* const end = entry;

  std::byte header[StoredItem::kNumberBytes + StoredItem::kLengthBytes] = {};
  std::uint64_t have = 0;  // of the header
  std::uint64_t left = 0;  // of the item
  bool kept = false;
  for (std::uint64_t offset = 0; offset < buckets_.bytes(bucket); offset += kWindow) {
    const std::uint64_t count =
        buckets_.read(bucket, offset, {window_.data(), static_cast<std::size_t>(kWindow)});
    std::span<const std::byte> bytes(window_.data(), count);
    while (!bytes.empty()) {
      if (left > 0) {
        const auto now = bytes.first(std::min<std::uint64_t>(left, bytes.size()));
        if (kept) {
          std::memcpy(begin + used, now.data(), now.size());
          used += now.size();
        }
        left -= now.size();
        bytes = bytes.subspan(now.size());
        continue;
      }
      const auto now = bytes.first(std::min<std::uint64_t>(head - have, bytes.size()));
      std::memcpy(header + have, now.data(), now.size());
      have += now.size();
      bytes = bytes.subspan(now.size());
      if (have < head) continue;
      have = 0;
      std::uint64_t number = 0;
      std::uint32_t length = 0;
      std::memcpy(&number, header, sizeof number);
      if (item_bytes_ == 0) std::memcpy(&length, header + sizeof number, sizeof length);
      left = item_bytes_ > 0 ? item_bytes_ : length;
      const std::uint64_t high = keys_.of(number).high;
      if (ShuffleKeys::bucket_of(high, buckets_.size().buckets) != bucket) {
        throw Error(ErrorKind::kFormat, "shuffle",
                    "item " + with_commas(number) + " is not of part " + with_commas(bucket))
            .in(buckets_.path())
            .hint("the scratch file was changed: begin again without --resume");
      }
      kept = high >= from && high <= last;
      if (!kept) continue;
      const std::uint64_t taken = left + (item_bytes_ > 0 ? 0 : sizeof length);
      if (used + taken + sizeof(Entry) > room) {
        if (from < last) return false;
        throw Error(ErrorKind::kBudget, "shuffle",
                    "an item of " + with_commas(left) + " bytes does not fit the " +
                        format_size(arena.memory.size()) + " that are for sorting")
            .hint("give a larger budget");
      }
      room -= sizeof(Entry);
      *--entry = {high, number, used};
      if (item_bytes_ == 0) {
        std::memcpy(begin + used, &length, sizeof length);
        used += sizeof length;
      }
    }
  }
  arena.entries = entry;
  arena.count = static_cast<std::size_t>(end - entry);
  return true;
}

void SortedBuckets::sort(Arena& arena) const {
  std::sort(arena.entries, arena.entries + arena.count, [this](const Entry& a, const Entry& b) {
    if (a.high != b.high) return a.high < b.high;
    const std::uint64_t low_a = keys_.of(a.number).low, low_b = keys_.of(b.number).low;
    return low_a != low_b ? low_a < low_b : a.number < b.number;
  });
}

std::optional<SortedBuckets::Part> SortedBuckets::next() {
  const MutexLock lock(mutex_);
  if (current_) {
    const bool was_last = current_->last;
    current_->ready = false;
    changed_.notify_all();
    if (was_last) return std::nullopt;
  }
  current_ = &arenas_[turn_++ % 2];
  while (!current_->ready && !error_) changed_.wait(mutex_);
  if (!current_->ready) std::rethrow_exception(error_);
  return Part{current_->count, current_->next_key};
}

std::span<const std::byte> SortedBuckets::item(std::size_t i) const {
  const Entry* entries = current_->entries;
  const std::byte* const memory = current_->memory.data();
  constexpr std::size_t kAhead = 8;
  if (i + kAhead < current_->count) __builtin_prefetch(memory + entries[i + kAhead].place);
  const std::byte* const at = memory + entries[i].place;
  if (item_bytes_ > 0) return {at, item_bytes_};
  std::uint32_t length = 0;
  std::memcpy(&length, at, sizeof length);
  return {at + sizeof length, length};
}

}  // namespace evenkeel
