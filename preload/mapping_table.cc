#include "preload/mapping_table.h"

namespace evenkeel::preload {
namespace {

bool overlap(std::uint64_t begin, std::uint64_t end, Range range) {
  return begin < range.end && range.begin < end;
}
bool inside(const Entry& entry, Range range) {
  return entry.begin >= range.begin && entry.end <= range.end;
}

}  // namespace

// Makes the version odd while it lives, and at its end gives free slots at the table's end back.
class Table::Change {
 public:
  explicit Change(Table& table) : table_(table) {
    table_.version_.fetch_add(1, std::memory_order_acq_rel);
  }
  ~Change() {
    std::uint32_t used = table_.used();
    while (used > 0 && !table_.filled(used - 1)) --used;
    table_.used_.store(used, std::memory_order_release);
    if (table_.process_) {
      table_.process_->mappings_used.store(used, std::memory_order_release);
      table_.process_->changes.fetch_add(1, std::memory_order_release);
    }
    table_.version_.fetch_add(1, std::memory_order_release);
  }
  Change(const Change&) = delete;
  Change& operator=(const Change&) = delete;

 private:
  Table& table_;
};

bool Table::touches(Range range) const {
  const std::uint32_t version = version_.load(std::memory_order_acquire);
  if (version % 2 != 0) return true;
  const std::uint32_t count = used_.load(std::memory_order_acquire);
  for (std::uint32_t i = 0; i < count; ++i) {
    if (overlap(slots_[i].begin.load(std::memory_order_acquire),
                slots_[i].end.load(std::memory_order_acquire), range)) {
      return true;
    }
  }
  return version_.load(std::memory_order_relaxed) != version;
}

void Table::publish_on(shared_table::Process* process, shared_table::Word* lost) {
  const Change change(*this);
  process_ = process;
  lost_ = lost;
  for (std::uint32_t i = 0; i < used(); ++i) {
    if (filled(i) && slots_[i].taken == 0) publish(i);
  }
}

void Table::publish(std::uint32_t i) {
  Slot& slot = slots_[i];
  if (!process_) return;
  shared_table::Mapping& out = process_->mappings[i];
  out.state.store(shared_table::kEmpty, std::memory_order_release);
  slot.generation = out.generation.load(std::memory_order_relaxed) + 1;
  out.generation.store(slot.generation, std::memory_order_release);
  out.file.store(slot.entry.file, std::memory_order_release);
  out.flags.store(slot.entry.flags, std::memory_order_release);
  out.begin.store(slot.entry.begin, std::memory_order_release);
  out.end.store(slot.entry.end, std::memory_order_release);
  out.offset.store(slot.entry.offset, std::memory_order_release);
  if (process_->mappings_used.load(std::memory_order_relaxed) <= i) {
    process_->mappings_used.store(i + 1, std::memory_order_release);
  }
  out.state.store(shared_table::kFilled, std::memory_order_release);
}

void Table::unpublish(std::uint32_t i) {
  if (process_) process_->mappings[i].state.store(shared_table::kEmpty, std::memory_order_release);
}

void Table::put(std::uint32_t i, const Entry& entry) {
  Slot& slot = slots_[i];
  slot.entry = entry;
  slot.begin.store(entry.begin, std::memory_order_release);
  slot.end.store(entry.end, std::memory_order_release);
}

void Table::empty_slot(std::uint32_t i) {
  unpublish(i);
  put(i, Entry{});
  slots_[i].taken = 0;
}

bool Table::add(const Entry& entry, std::uint32_t taken) {
  std::uint32_t i = 0;
  while (i < used() && filled(i)) ++i;
  if (i == shared_table::kMappings) {
    if (lost_) lost_->fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  put(i, entry);
  slots_[i].taken = taken;
  if (i == used()) used_.store(i + 1, std::memory_order_release);
  if (taken == 0) publish(i);
  return true;
}

// Where there is no room for two, the upper part goes.
void Table::split_at(std::uint64_t address) {
  for (std::uint32_t i = 0; i < used(); ++i) {
    const Entry whole = slots_[i].entry;
    if (whole.end == 0 || address <= whole.begin || address >= whole.end) continue;
    Entry lower = whole, upper = whole;
    lower.end = upper.begin = address;
    upper.offset += address - whole.begin;
    unpublish(i);
    put(i, lower);
    if (slots_[i].taken == 0) publish(i);
    add(upper, slots_[i].taken);
    return;  // entries do not overlap
  }
}

void Table::insert(const Entry& entry) {
  remove({entry.begin, entry.end});
  const Change change(*this);
  add(entry, 0);
}

void Table::remove(Range range) {
  const Change change(*this);
  split_at(range.begin);
  split_at(range.end);
  for (std::uint32_t i = 0; i < used(); ++i) {
    if (filled(i) && inside(slots_[i].entry, range)) empty_slot(i);
  }
}

void Table::remove_slot(std::uint32_t slot) {
  const Change change(*this);
  empty_slot(slot);
}

void Table::clear() { remove({0, ~std::uint64_t{0}}); }

void Table::add_flags(Range range, std::uint32_t flags) {
  for (std::uint32_t i = 0; i < used(); ++i) {
    const Entry& entry = slots_[i].entry;
    if (overlap(entry.begin, entry.end, range)) add_flags_to_slot(i, flags);
  }
}

void Table::add_flags_to_slot(std::uint32_t slot, std::uint32_t flags) {
  slots_[slot].entry.flags |= flags;
  if (!process_) return;
  process_->mappings[slot].flags.store(slots_[slot].entry.flags, std::memory_order_release);
  process_->changes.fetch_add(1, std::memory_order_release);
}

void Table::set_device(std::uint32_t slot, std::uint64_t device) {
  slots_[slot].entry.device = device;
}

std::uint32_t Table::take(Range range) {
  const Change change(*this);
  split_at(range.begin);
  split_at(range.end);
  if (++last_taken_ == 0) ++last_taken_;
  bool any = false;
  for (std::uint32_t i = 0; i < used(); ++i) {
    if (!filled(i) || !inside(slots_[i].entry, range)) continue;
    unpublish(i);
    slots_[i].taken = last_taken_;
    any = true;
  }
  return any ? last_taken_ : 0;
}

void Table::give_back(std::uint32_t taken) {
  const Change change(*this);
  for (std::uint32_t i = 0; i < used(); ++i) {
    if (!filled(i) || slots_[i].taken != taken) continue;
    slots_[i].taken = 0;
    publish(i);
  }
}

void Table::drop(std::uint32_t taken) {
  const Change change(*this);
  for (std::uint32_t i = 0; i < used(); ++i) {
    if (filled(i) && slots_[i].taken == taken) empty_slot(i);
  }
}

void Table::move(std::uint32_t taken, Range from, Range to, bool stays) {
  const std::uint64_t old_length = from.end - from.begin, length = to.end - to.begin;
  for (std::uint32_t i = 0; i < used(); ++i) {
    if (!filled(i) || slots_[i].taken != taken) continue;
    Entry entry = slots_[i].entry;
    const std::uint64_t begin = entry.begin - from.begin;
    std::uint64_t end = entry.end - from.begin;
    if (end == old_length || end > length) end = length;
    entry.begin = to.begin + begin;
    entry.end = to.begin + end;
    {
      const Change change(*this);
      if (stays) {
        slots_[i].taken = 0;
        publish(i);
      } else {
        empty_slot(i);
      }
    }
    if (begin < end) insert(entry);
  }
}

bool Table::find(std::uint32_t slot, std::uint32_t generation, Entry& out) const {
  if (slot >= used() || !filled(slot) || slots_[slot].taken != 0 ||
      slots_[slot].generation != generation) {
    return false;
  }
  out = slots_[slot].entry;
  return true;
}

bool Table::at(std::uint64_t address, Entry& out) const {
  for (std::uint32_t i = 0; i < used(); ++i) {
    const Entry& entry = slots_[i].entry;
    if (entry.begin > address || entry.end <= address) continue;
    out = entry;
    return true;
  }
  return false;
}

void Table::after_fork() {
  process_ = nullptr;
  const bool torn = version_.load(std::memory_order_relaxed) % 2 != 0;
  if (torn) version_.fetch_add(1, std::memory_order_relaxed);
  const Change change(*this);
  if (torn) used_.store(shared_table::kMappings, std::memory_order_relaxed);
  for (std::uint32_t i = 0; i < used(); ++i) {
    if (torn || slots_[i].taken != 0) empty_slot(i);
  }
}

}  // namespace evenkeel::preload
