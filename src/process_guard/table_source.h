// Mappings that guarded programs themselves tell of, on the board.
#pragma once

#include <map>
#include <memory>

#include "guard/access.h"
#include "process_guard/mapping_source.h"
#include "process_guard/shared_table.h"

namespace evenkeel {

class TableSource : public MappingSource {
 public:
  explicit TableSource(SharedTableOwner& board) : board_(board) {}

  void wait(std::chrono::nanoseconds most) override { board_.wait(seen_, most); }
  void interrupt() override { board_.interrupt(); }
  std::vector<Seen> look() override;
  std::string path(const Seen& mapping) const override;
  std::unique_ptr<GuardedMapping> hold(const Seen& mapping) override;
  void set_random(const Seen& mapping, bool random) override;
  std::vector<std::string> notes() const override;

 private:
  const TableFile& file(std::uint32_t slot);

  SharedTableOwner& board_;
  std::uint32_t seen_ = 0;
  std::map<std::uint64_t, TableEntry> mappings_;         // by key, as of the last look
  std::map<std::uint32_t, TableFile> files_;             // never change
  std::map<pid_t, std::shared_ptr<PageMap>> processes_;  // as of the last look
};

}  // namespace evenkeel
