#include "prepare/sorted_buckets.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/checked.h"
#include "base/thread.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"

namespace evenkeel {

SortedBuckets::SortedBuckets(BucketReader& buckets, const Budget& budget, std::uint64_t part_bytes,
                             ShuffleKeys keys, std::uint64_t item_bytes, std::uint64_t from,
                             std::uint64_t end)
    : buckets_(buckets),
      keys_(keys),
      item_bytes_(item_bytes),
      from_(from),
      end_(end),
      window_(budget, kWindow, "a window of the scratch file"),
      loader_(buckets) {
  for (Arena& arena : arenas_) arena.memory = PageBuffer(budget, part_bytes, "items to sort");
  thread_ = start_needed_thread("shuffle", [this] { work(); });
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
    const std::uint64_t count = buckets_.count();
    unsigned turn = 0;
    for (std::uint64_t bucket = ShuffleKeys::bucket_of(from_, count); bucket < end_; ++bucket) {
      std::uint64_t from = std::max(from_, ShuffleKeys::first_key(bucket, count));
      const std::uint64_t end =
          bucket + 1 == count ? UINT64_MAX : ShuffleKeys::first_key(bucket + 1, count) - 1;
      for (bool done = false; !done;) {
        Arena& arena = arenas_[turn % 2];
        {
          const MutexLock lock(mutex_);
          while (arena.ready && !ending_) changed_.wait(mutex_);
          if (ending_) return;
        }
        std::uint64_t last = end;
        while (!load(arena, {bucket, from, last})) last = from + (last - from) / 2;
        sort(arena, {bucket, from, last});
        done = last == end;
        arena.last = done && bucket + 1 == end_;
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

std::uint64_t SortedBuckets::number_of(const std::byte* head) const {
  std::uint64_t number = 0;
  std::memcpy(&number, head, sizeof number);
  return number;
}

std::uint64_t SortedBuckets::length_of(const std::byte* head) const {
  if (item_bytes_ > 0) return item_bytes_;
  std::uint32_t length = 0;
  std::memcpy(&length, head + StoredItem::kNumberBytes, sizeof length);
  return length;
}

std::uint64_t SortedBuckets::key_of(const std::byte* head, std::uint64_t bucket) const {
  const std::uint64_t number = number_of(head), high = keys_.of(number).high;
  if (ShuffleKeys::bucket_of(high, buckets_.count()) == bucket) return high;
  throw Error(ErrorKind::kFormat, "shuffle",
              "item " + with_commas(number) + " does not belong to part " + with_commas(bucket))
      .in(buckets_.path())
      .hint("the scratch file was changed: begin again without --resume");
}

Error SortedBuckets::does_not_fit(std::uint64_t item_bytes) const {
  return Error(ErrorKind::kBudget, "shuffle",
               "an item of " + with_commas(item_bytes) + " bytes does not fit the " +
                   format_size(arenas_[0].memory.size()) + " of memory for sorting")
      .hint("give a larger budget");
}

bool SortedBuckets::load(Arena& arena, const Range& range) {
  // Whole pages, so that entries and reads are aligned.
  const std::uint64_t stored = BucketLoader::memory(buckets_, range.bucket);
  return stored < arena.memory.size() && load_whole(arena, range) ? true
                                                                  : load_filtered(arena, range);
}

// Items are not moved after they were read; only entries are added.
bool SortedBuckets::load_whole(Arena& arena, const Range& range) {
  std::byte* const begin = arena.memory.data();
  const std::uint64_t head = head_bytes();
  auto* const end = reinterpret_cast<Entry*>(begin + arena.memory.size());
  const auto* const least =
      reinterpret_cast<Entry*>(begin + BucketLoader::memory(buckets_, range.bucket));
  Entry* entry = end;
  loader_.start(range.bucket, begin);
  try {
    std::uint64_t have = 0;
    for (const auto& [first, stored] : buckets_.segments(range.bucket)) {
      const auto need = [&, stored = stored](std::uint64_t until) {
        if (until > stored) {
          throw Error(ErrorKind::kFormat, "shuffle",
                      "part " + with_commas(range.bucket) + " ends in the middle of an item")
              .in(buckets_.path())
              .hint("the scratch file was changed: begin again without --resume");
        }
        while (have < until) have = loader_.wait_for_more(have);
      };
      for (std::uint64_t at = first; at < stored;) {
        if (have < at + head) need(at + head);
        const std::uint64_t length = length_of(begin + at);
        const std::uint64_t high = key_of(begin + at, range.bucket);
        if (high >= range.from && high <= range.last) {
          if (entry == least) {  // too many small items
            loader_.cancel();
            return false;
          }
          *--entry = {high, at};
        }
        at += head + length;
        if (have < at) need(at);
      }
    }
  } catch (...) {
    loader_.cancel();
    throw;
  }
  arena.entries = entry;
  arena.count = static_cast<std::size_t>(end - entry);
  return true;
}

bool SortedBuckets::load_filtered(Arena& arena, const Range& range) {
  std::byte* const begin = arena.memory.data();
  const std::uint64_t head = head_bytes();
  std::uint64_t used = 0, room = arena.memory.size();
  auto* entry = reinterpret_cast<Entry*>(begin + room);
  Entry* const end = entry;

  std::byte header[StoredItem::kNumberBytes + StoredItem::kLengthBytes] = {};
  std::uint64_t have = 0;  // bytes of the header so far
  std::uint64_t left = 0;  // bytes of the item to come
  bool kept = false;
  for (const auto& [first, stored] : buckets_.segments(range.bucket)) {
    for (std::uint64_t offset = first; offset < stored; offset += kWindow) {
      const std::uint64_t size = std::min(kWindow, stored - offset);
      buckets_.read(range.bucket, offset, {window_.data(), round_up(size, OutputFile::kAlignment)});
      std::span<const std::byte> bytes(window_.data(), size);
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
        left = length_of(header);
        const std::uint64_t high = key_of(header, range.bucket);
        kept = high >= range.from && high <= range.last;
        if (!kept) continue;
        if (used + head + left + sizeof(Entry) > room) {
          if (range.from < range.last) return false;
          throw does_not_fit(left);
        }
        room -= sizeof(Entry);
        *--entry = {high, used};
        std::memcpy(begin + used, header, head);
        used += head;
      }
    }
  }
  arena.entries = entry;
  arena.count = static_cast<std::size_t>(end - entry);
  return true;
}

void SortedBuckets::sort_few(Entry* first, Entry* last, const std::byte* memory) const {
  std::sort(first, last, [&](const Entry& a, const Entry& b) {
    if (a.high != b.high) return a.high < b.high;
    const std::uint64_t number_a = number_of(memory + a.place);
    const std::uint64_t number_b = number_of(memory + b.place);
    const std::uint64_t low_a = keys_.of(number_a).low, low_b = keys_.of(number_b).low;
    return low_a != low_b ? low_a < low_b : number_a < number_b;
  });
}

// American flag sort (McIlroy, Bostic and McIlroy, "Engineering Radix Sort", 1993). Keys are
// uniform, so their bits divide them evenly. All keys are in base .. base + 2^bits - 1.
void SortedBuckets::sort_by_bits(Entry* first, Entry* last, std::uint64_t base, unsigned bits,
                                 const std::byte* memory) const {
  constexpr std::size_t kFew = 24;
  constexpr unsigned kMostBits = 11;
  const auto count = static_cast<std::size_t>(last - first);
  if (count <= kFew || bits == 0) return sort_few(first, last, memory);
  // A few entries for each bin at the end, and bins whose places fit the cache before.
  const unsigned now =
      std::min({static_cast<unsigned>(std::bit_width(count / 4)), kMostBits, bits});
  const unsigned shift = bits - now;
  const auto bin_of = [&](const Entry& entry) { return (entry.high - base) >> shift; };
  const std::size_t bins = std::size_t{1} << now;
  Entry* nexts[1 << kMostBits];
  std::size_t ends[1 << kMostBits];  // counts at first
  std::fill_n(ends, bins, 0);
  for (const Entry* entry = first; entry < last; ++entry) ++ends[bin_of(*entry)];
  std::size_t end = 0;
  for (std::size_t bin = 0; bin < bins; ++bin) {
    nexts[bin] = first + end;
    ends[bin] = end += ends[bin];
  }
  for (std::size_t bin = 0; bin < bins; ++bin) {
    while (nexts[bin] < first + ends[bin]) {
      Entry moved = *nexts[bin];
      for (std::size_t target = bin_of(moved); target != bin; target = bin_of(moved)) {
        std::swap(moved, *nexts[target]++);
      }
      *nexts[bin]++ = moved;
    }
  }
  for (std::size_t bin = 0, begin = 0; bin < bins; begin = ends[bin++]) {
    if (ends[bin] - begin < 2) continue;
    sort_by_bits(first + begin, first + ends[bin], base + (std::uint64_t{bin} << shift), shift,
                 memory);
  }
}

void SortedBuckets::sort(Arena& arena, const Range& range) const {
  const auto bits = static_cast<unsigned>(std::bit_width(range.last - range.from));
  sort_by_bits(arena.entries, arena.entries + arena.count, range.from, bits, arena.memory.data());
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
  // Items lie at random places, so those of later items are prefetched.
  constexpr std::size_t kAhead = 12;
  if (i + kAhead < current_->count) {
    const std::byte* const later = memory + entries[i + kAhead].place;
    __builtin_prefetch(later);
    __builtin_prefetch(later + 64);
    __builtin_prefetch(later + 128);
  }
  const std::byte* const head = memory + entries[i].place;
  return {head + head_bytes(), length_of(head)};
}

}  // namespace evenkeel
