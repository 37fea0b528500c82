#include "process_guard/table_source.h"

#include <cerrno>
#include <memory>
#include <utility>

#include "evenkeel/bytes.h"

namespace evenkeel {
namespace {

// Longer than a busy machine keeps a thread waiting. A stopped program does not answer at all.
constexpr std::chrono::milliseconds kAnswerTimeout{50};

// A mapping whose own process releases its pages on command.
class TableMapping : public GuardedMapping {
 public:
  TableMapping(const ObservedMapping& observed, const TableEntry& mapping, SharedTableOwner& table,
               std::shared_ptr<PageMap> pages, std::string name, bool has_descriptor)
      : GuardedMapping(observed.key, observed.range, observed.offset),
        mapping_(mapping),
        file_id_{observed.device, observed.inode},
        table_(table),
        pages_(std::move(pages)),
        name_(std::move(name)),
        kind_(has_descriptor ? shared_table::kRelease : shared_table::kPageOut) {}

  std::string name() const override { return name_; }
  std::optional<FileId> file_id() const override {
    return kind_ == shared_table::kPageOut ? std::optional(file_id_) : std::nullopt;
  }
  bool still_there() const override { return table_.holds(mapping_); }
  int let_go(AddressRange range) override {
    const int error = start_let_go(range);
    return error != 0 ? error : finish_let_go();
  }
  int start_let_go(AddressRange range) override {
    int before = 0;  // the error of the full command, if it had to be finished first
    int error = table_.start_command(mapping_, range.begin, range.end, kind_);
    if (error == ENOBUFS) {
      before = failure(table_.finish_full_command(mapping_, kAnswerTimeout).error);
      error = table_.start_command(mapping_, range.begin, range.end, kind_);
    }
    return before != 0 ? before : failure(error);
  }
  int finish_let_go() override {
    return failure(table_.finish_command(mapping_, kAnswerTimeout).error);
  }
  int advise(AddressRange range, int advice) override {
    if (mapping_.advised) return 0;  // keep the program's own advice
    return failure(table_.advise(mapping_, range.begin, range.end, advice, kAnswerTimeout).error);
  }
  int limit_readahead(AddressRange range) override {
    if (mapping_.advised) return 0;
    const int error =
        table_.start_command(mapping_, range.begin, range.end, shared_table::kLimitReadahead);
    return failure(error != 0 ? error : table_.finish_command(mapping_, kAnswerTimeout).error);
  }
  bool count_resident(AddressRange range, AccessSample& sample) const override {
    return pages_->count(range, sample);
  }

 private:
  // It is no failure if the mapping is gone or the process answers later.
  static int failure(int error) {
    const bool none = error == ESTALE || error == ETIMEDOUT || error == EBUSY || error == ENOBUFS;
    return none ? 0 : error;
  }
  const TableEntry mapping_;
  const FileId file_id_;
  SharedTableOwner& table_;
  const std::shared_ptr<PageMap> pages_;
  const std::string name_;
  const shared_table::CommandKind kind_;
};

std::string counted(std::uint64_t number, const char* one, const char* many) {
  return with_commas(number) + " " + (number == 1 ? one : many);
}

}  // namespace

std::vector<ObservedMapping> TableSource::observe() {
  unmount_requests_ = table_.unmount_requests();
  table_.retire_files();
  std::vector<ObservedMapping> observed;
  mappings_.clear();
  std::map<pid_t, std::shared_ptr<PageMap>> living;
  std::map<FileKey, TableFile> before = std::exchange(files_, {});
  for (const TableEntry& one : table_.mappings()) {
    auto& pages = living[one.pid];
    if (!pages) pages = std::exchange(processes_[one.pid], nullptr);
    if (!pages) pages = std::make_shared<PageMap>(one.pid);
    const FileKey file_key{one.file, one.file_generation};
    if (auto known = before.extract(file_key)) files_.insert(std::move(known));
    const TableFile& mapped = file(file_key);
    const std::uint64_t key = std::uint64_t{one.process} << 32 | one.mapping;
    observed.push_back({.key = key,
                        .generation = one.generation,
                        .pid = one.pid,
                        .range = {one.begin, one.end},
                        .offset = one.offset,
                        .device = mapped.device,
                        .inode = mapped.inode,
                        .file = std::uint64_t{one.file_generation} << 32 | one.file,
                        .descriptor = one.descriptor});
    mappings_[key] = one;
  }
  processes_ = std::move(living);
  return observed;
}

const TableFile& TableSource::file(FileKey key) {
  const auto place = files_.find(key);
  return place != files_.end() ? place->second : files_[key] = table_.file(key.first);
}

std::string TableSource::path(const ObservedMapping& mapping) const {
  const TableEntry& entry = mappings_.at(mapping.key);
  return files_.at({entry.file, entry.file_generation}).path;
}

std::unique_ptr<GuardedMapping> TableSource::make_guarded(const ObservedMapping& mapping,
                                                          bool has_descriptor) {
  const TableEntry& entry = mappings_.at(mapping.key);
  return std::make_unique<TableMapping>(
      mapping, entry, table_, processes_.at(entry.pid),
      path(mapping) + ", mapped by process " + std::to_string(mapping.pid), has_descriptor);
}

void TableSource::set_random(const ObservedMapping& mapping, bool random) {
  table_.set_random(static_cast<std::uint32_t>(mapping.file),
                    static_cast<std::uint32_t>(mapping.file >> 32), random);
}

std::vector<std::string> TableSource::notes() const {
  const LostCounts lost = table_.lost();
  std::vector<std::string> notes;
  if (lost.processes != 0) {
    notes.push_back(counted(lost.processes, "process", "processes") +
                    " cannot be guarded: the guard has room for " +
                    with_commas(shared_table::kProcesses) + " at a time");
  }
  if (lost.files != 0) {
    notes.push_back(counted(lost.files, "mapped file", "mapped files") +
                    " cannot be guarded: the guard has room for " +
                    with_commas(shared_table::kFiles) + " at a time");
  }
  if (lost.paths != 0) {
    notes.push_back(counted(lost.paths, "mapped file", "mapped files") +
                    " cannot be guarded: the paths are longer than " +
                    with_commas(shared_table::kShortPath) +
                    " bytes, and the guard's room for long paths is used up");
  }
  if (lost.mappings != 0) {
    notes.push_back(counted(lost.mappings, "mapping", "mappings") +
                    " cannot be guarded: the guard has room for " +
                    with_commas(shared_table::kMappings) + " of a process");
  }
  if (lost.sandboxed != 0) {
    notes.push_back(counted(lost.sandboxed, "process has", "processes have") +
                    " a seccomp filter, which might kill a process for the system calls of the "
                    "guard, or a namespace that only a process without threads can enter: not "
                    "guarded");
  }
  return notes;
}

}  // namespace evenkeel
