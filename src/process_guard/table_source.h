// Mappings that guarded programs have registered in the shared table.
#pragma once

#include <map>
#include <memory>
#include <utility>

#include "guard/access.h"
#include "process_guard/mapping_source.h"
#include "process_guard/shared_table.h"

namespace evenkeel {

// `table` must outlive the source.
class TableSource : public MappingSource {
 public:
  explicit TableSource(SharedTableOwner& table) : table_(table) {}

  void wait(std::chrono::nanoseconds most) override { table_.wait(changes_, most); }
  void interrupt() override { table_.interrupt(); }
  std::vector<ObservedMapping> observe() override;
  void acted_upon() override { table_.answer_unmount_requests(unmount_requests_); }
  std::string path(const ObservedMapping& mapping) const override;
  std::unique_ptr<GuardedMapping> make_guarded(const ObservedMapping& mapping,
                                               bool has_descriptor) override;
  void set_random(const ObservedMapping& mapping, bool random) override;
  std::vector<std::string> notes() const override;

 private:
  // An entry of the table and its generation.
  using FileKey = std::pair<std::uint32_t, std::uint32_t>;
  const TableFile& file(FileKey key);

  SharedTableOwner& table_;
  std::uint32_t changes_ = 0, unmount_requests_ = 0;
  std::map<std::uint64_t, TableEntry> mappings_;         // by key, as of the last observe()
  std::map<FileKey, TableFile> files_;                   // as of the last observe()
  std::map<pid_t, std::shared_ptr<PageMap>> processes_;  // as of the last observe()
};

}  // namespace evenkeel
