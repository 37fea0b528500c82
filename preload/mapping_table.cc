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

// Keeps the version odd during its lifetime. Its destructor also trims free slots at the table's
// end.
class MappingTable::Change {
 public:
  explicit Change(MappingTable& table) : table_(table) {
    table_.version_.fetch_add(1, std::memory_order_acq_rel);
  }
  ~Change() {
    std::uint32_t used = table_.used();
    while (used > 0 && !table_.filled(used - 1)) --used;
    table_.used_.store(used, std::memory_order_release);
    if (shared_table::Process* process = table_.copy_.process) {
      process->mappings_used.store(used, std::memory_order_release);
      process->changes.fetch_add(1, std::memory_order_release);
    }
    table_.version_.fetch_add(1, std::memory_order_release);
  }
  Change(const Change&) = delete;
  Change& operator=(const Change&) = delete;

 private:
  MappingTable& table_;
};

bool MappingTable::touches(Range range) const {
  const std::uint32_t version = version_.load(std::memory_order_acquire);
  if (version % 2 != 0) return true;
  const std::uint32_t count = used_.load(std::memory_order_acquire);
  for (std::uint32_t first = 0; first < count; first += kGroup) {
    const Bounds& bounds = bounds_[first / kGroup];
    if (!overlap(bounds.begin.load(std::memory_order_acquire),
                 bounds.end.load(std::memory_order_acquire), range)) {
      continue;
    }
    for (std::uint32_t i = first; i < first + kGroup; ++i) {
      if (overlap(slots_[i].begin.load(std::memory_order_acquire),
                  slots_[i].end.load(std::memory_order_acquire), range)) {
        return true;
      }
    }
  }
  return version_.load(std::memory_order_relaxed) != version;
}

// Called with the lock held. `call` may change any slots, including those not yet visited.
template <class Call>
void MappingTable::for_overlapping(Range range, const Call& call) const {
  for (std::uint32_t first = 0; first < used(); first += kGroup) {
    const Bounds& bounds = bounds_[first / kGroup];
    if (!overlap(bounds.begin.load(std::memory_order_relaxed),
                 bounds.end.load(std::memory_order_relaxed), range)) {
      continue;
    }
    for (std::uint32_t i = first; i < first + kGroup; ++i) {
      const Entry& entry = slots_[i].entry;
      if (filled(i) && overlap(entry.begin, entry.end, range)) call(i);
    }
  }
}

void MappingTable::publish_on(const Copy& copy) {
  const Change change(*this);
  copy_ = copy;
  for (std::uint32_t i = 0; i < used(); ++i) {
    if (filled(i) && slots_[i].taken == 0) publish(i);
  }
}

void MappingTable::publish(std::uint32_t i) {
  Slot& slot = slots_[i];
  if (!copy_.process) return;
  shared_table::Mapping& out = copy_.mappings[i];
  out.state.store(shared_table::kEmpty, std::memory_order_release);
  slot.generation = out.generation.load(std::memory_order_relaxed) + 1;
  out.generation.store(slot.generation, std::memory_order_release);
  out.file.store(slot.entry.file, std::memory_order_release);
  out.file_generation.store(slot.entry.file_generation, std::memory_order_release);
  out.descriptor.store(slot.entry.descriptor, std::memory_order_release);
  out.flags.store(slot.entry.flags, std::memory_order_release);
  out.begin.store(slot.entry.begin, std::memory_order_release);
  out.end.store(slot.entry.end, std::memory_order_release);
  out.offset.store(slot.entry.offset, std::memory_order_release);
  if (copy_.process->mappings_used.load(std::memory_order_relaxed) <= i) {
    copy_.process->mappings_used.store(i + 1, std::memory_order_release);
  }
  out.state.store(shared_table::kFilled, std::memory_order_release);
}

void MappingTable::unpublish(std::uint32_t i) {
  if (copy_.process) copy_.mappings[i].state.store(shared_table::kEmpty, std::memory_order_release);
}

void MappingTable::put(std::uint32_t i, const Entry& entry) {
  Slot& slot = slots_[i];
  slot.entry = entry;
  slot.begin.store(entry.begin, std::memory_order_release);
  slot.end.store(entry.end, std::memory_order_release);
  update_bounds(i / kGroup);
}

void MappingTable::update_bounds(std::uint32_t group) {
  Range all{~std::uint64_t{0}, 0};
  for (std::uint32_t i = group * kGroup; i < (group + 1) * kGroup; ++i) {
    if (!filled(i)) continue;
    const Entry& entry = slots_[i].entry;
    if (entry.begin < all.begin) all.begin = entry.begin;
    if (entry.end > all.end) all.end = entry.end;
  }
  bounds_[group].begin.store(all.begin, std::memory_order_release);
  bounds_[group].end.store(all.end, std::memory_order_release);
}

void MappingTable::empty_slot(std::uint32_t i) {
  unpublish(i);
  put(i, Entry{});
  slots_[i].taken = 0;
  if (i < first_free_) first_free_ = i;
}

bool MappingTable::add(const Entry& entry, std::uint32_t taken) {
  std::uint32_t i = first_free_;
  while (i < used() && filled(i)) ++i;
  first_free_ = i;
  if (i == shared_table::kMappings) {
    if (copy_.lost) copy_.lost->fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  first_free_ = i + 1;
  put(i, entry);
  slots_[i].taken = taken;
  if (i == used()) used_.store(i + 1, std::memory_order_release);
  if (taken == 0) publish(i);
  return true;
}

// If there is no room for two entries, the upper part is dropped.
void MappingTable::split_at(std::uint64_t address) {
  if (address == ~std::uint64_t{0}) return;
  std::uint32_t found = shared_table::kMappings;
  for_overlapping({address, address + 1}, [&](std::uint32_t i) { found = i; });
  if (found == shared_table::kMappings || slots_[found].entry.begin == address) return;
  const Entry whole = slots_[found].entry;
  Entry lower = whole, upper = whole;
  lower.end = upper.begin = address;
  upper.offset += address - whole.begin;
  unpublish(found);
  put(found, lower);
  if (slots_[found].taken == 0) publish(found);
  add(upper, slots_[found].taken);
}

void MappingTable::insert(const Entry& entry) {
  remove({entry.begin, entry.end});
  const Change change(*this);
  add(entry, 0);
}

void MappingTable::remove(Range range) {
  const Change change(*this);
  split_at(range.begin);
  split_at(range.end);
  for_overlapping(range, [&](std::uint32_t i) {
    if (inside(slots_[i].entry, range)) empty_slot(i);
  });
}

void MappingTable::remove_slot(std::uint32_t slot) {
  const Change change(*this);
  empty_slot(slot);
}

void MappingTable::clear() { remove({0, ~std::uint64_t{0}}); }

void MappingTable::add_flags(Range range, std::uint32_t flags) {
  for_overlapping(range, [&](std::uint32_t i) { add_flags_to_slot(i, flags); });
}

void MappingTable::add_flags_to_slot(std::uint32_t slot, std::uint32_t flags) {
  slots_[slot].entry.flags |= flags;
  if (!copy_.process) return;
  copy_.mappings[slot].flags.store(slots_[slot].entry.flags, std::memory_order_release);
  copy_.process->changes.fetch_add(1, std::memory_order_release);
}

void MappingTable::set_device(std::uint32_t slot, std::uint64_t device) {
  slots_[slot].entry.device = device;
}

std::uint32_t MappingTable::take(Range range) {
  const Change change(*this);
  split_at(range.begin);
  split_at(range.end);
  if (++last_taken_ == 0) ++last_taken_;
  bool any = false;
  for_overlapping(range, [&](std::uint32_t i) {
    if (!inside(slots_[i].entry, range)) return;
    unpublish(i);
    slots_[i].taken = last_taken_;
    any = true;
  });
  return any ? last_taken_ : 0;
}

void MappingTable::give_back(std::uint32_t taken) {
  const Change change(*this);
  for (std::uint32_t i = 0; i < used(); ++i) {
    if (!filled(i) || slots_[i].taken != taken) continue;
    slots_[i].taken = 0;
    publish(i);
  }
}

void MappingTable::drop(std::uint32_t taken) {
  const Change change(*this);
  for (std::uint32_t i = 0; i < used(); ++i) {
    if (filled(i) && slots_[i].taken == taken) empty_slot(i);
  }
}

void MappingTable::move(std::uint32_t taken, Range from, Range to, bool stays) {
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

bool MappingTable::find(std::uint32_t slot, std::uint32_t generation, Entry& out) const {
  if (slot >= used() || !filled(slot) || slots_[slot].taken != 0 ||
      slots_[slot].generation != generation) {
    return false;
  }
  out = slots_[slot].entry;
  return true;
}

bool MappingTable::at(std::uint64_t address, Entry& out) const {
  bool found = false;
  for_overlapping({address, address + 1}, [&](std::uint32_t i) {
    out = slots_[i].entry;
    found = true;
  });
  return found;
}

void MappingTable::after_fork() {
  copy_.process = nullptr;
  copy_.mappings = nullptr;
  const bool torn = version_.load(std::memory_order_relaxed) % 2 != 0;
  if (torn) version_.fetch_add(1, std::memory_order_relaxed);
  const Change change(*this);
  if (torn) first_free_ = 0;
  // The interrupted change may have filled a slot that is not counted yet.
  if (torn && used() < shared_table::kMappings) used_.store(used() + 1, std::memory_order_relaxed);
  for (std::uint32_t i = 0; i < used(); ++i) {
    if (torn || slots_[i].taken != 0) empty_slot(i);
  }
}

}  // namespace evenkeel::preload
