#include "process_guard/table_source.h"

#include <cerrno>
#include <memory>
#include <utility>

namespace evenkeel {
namespace {

// Longer than a busy machine keeps a thread waiting; a stopped program is answered for anyway.
constexpr std::chrono::milliseconds kPatience{50};

// A mapping that its own process acts upon.
class TableMapping : public GuardedMapping {
 public:
  TableMapping(const Seen& seen, const TableEntry& mapping, SharedTableOwner& board,
               std::shared_ptr<PageMap> pages, std::string name)
      : GuardedMapping(seen.key, seen.range, seen.offset),
        mapping_(mapping),
        board_(board),
        pages_(std::move(pages)),
        name_(std::move(name)) {}

  std::string name() const override { return name_; }
  bool still_there() const override { return board_.holds(mapping_); }
  int let_go(AddressRange range) override {
    return told(board_.let_go(mapping_, range.begin, range.end, kPatience).error);
  }
  int advise(AddressRange range, int advice) override {
    if (mapping_.advised) return 0;  // the program knows what it wants
    return told(board_.advise(mapping_, range.begin, range.end, advice, kPatience).error);
  }
  bool count_resident(AddressRange range, AccessSample& sample) const override {
    return pages_->count(range, sample);
  }

 private:
  // What was unmapped meanwhile, or answers later, is no failure.
  static int told(int error) {
    return error == ESTALE || error == ETIMEDOUT || error == EBUSY ? 0 : error;
  }
  const TableEntry mapping_;
  SharedTableOwner& board_;
  const std::shared_ptr<PageMap> pages_;
  const std::string name_;
};

}  // namespace

std::vector<Seen> TableSource::look() {
  std::vector<Seen> seen;
  mappings_.clear();
  std::map<pid_t, std::shared_ptr<PageMap>> living;
  for (const TableEntry& one : board_.mappings()) {
    auto& pages = living[one.pid];
    if (!pages) pages = std::exchange(processes_[one.pid], nullptr);
    if (!pages) pages = std::make_shared<PageMap>(one.pid);
    const std::uint64_t key = std::uint64_t{one.process} << 32 | one.mapping;
    const TableFile& mapped = file(one.file);
    seen.push_back({.key = key,
                    .generation = one.generation,
                    .pid = one.pid,
                    .range = {one.begin, one.end},
                    .offset = one.offset,
                    .device = mapped.device,
                    .inode = mapped.inode,
                    .file = one.file});
    mappings_[key] = one;
  }
  processes_ = std::move(living);
  return seen;
}

const TableFile& TableSource::file(std::uint32_t slot) {
  const auto place = files_.find(slot);
  return place != files_.end() ? place->second : files_[slot] = board_.file(slot);
}

std::string TableSource::path(const Seen& mapping) const {
  return files_.at(static_cast<std::uint32_t>(mapping.file)).path;
}

std::unique_ptr<GuardedMapping> TableSource::hold(const Seen& mapping) {
  const TableEntry& told = mappings_.at(mapping.key);
  return std::make_unique<TableMapping>(
      mapping, told, board_, processes_.at(told.pid),
      path(mapping) + ", mapped by process " + std::to_string(mapping.pid));
}

void TableSource::set_random(const Seen& mapping, bool random) {
  board_.set_random(static_cast<std::uint32_t>(mapping.file), random);
}

std::vector<std::string> TableSource::notes() const {
  const std::uint32_t lost = board_.lost();
  if (lost == 0) return {};
  return {std::to_string(lost) + " mappings, files or processes were too many to be governed"};
}

}  // namespace evenkeel
