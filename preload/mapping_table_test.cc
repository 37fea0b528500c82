// labels: threads
#include "preload/mapping_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "preload/lock.h"

namespace evenkeel::preload {
namespace {

class PreloadTable : public ::testing::Test {
 protected:
  PreloadTable() { table->publish_on({process.get(), mappings.data(), &lost}); }

  static Entry entry(std::uint64_t begin, std::uint64_t end, std::uint64_t offset = 0) {
    Entry made;
    made.begin = begin;
    made.end = end;
    made.offset = offset;
    made.inode = 1;
    return made;
  }
  // The mappings that the tool sees, such as "10-20@0 30-40@5".
  std::string published() const {
    std::vector<const shared_table::Mapping*> found;
    for (std::uint32_t i = 0; i < process->mappings_used; ++i) {
      if (mappings[i].state == shared_table::kFilled) found.push_back(&mappings[i]);
    }
    std::sort(found.begin(), found.end(),
              [](const auto* a, const auto* b) { return a->begin < b->begin; });
    std::string text;
    for (const shared_table::Mapping* mapping : found) {
      text += (text.empty() ? "" : " ") + std::to_string(mapping->begin) + "-" +
              std::to_string(mapping->end) + "@" + std::to_string(mapping->offset);
    }
    return text;
  }

  std::unique_ptr<shared_table::Process> process = std::make_unique<shared_table::Process>();
  std::vector<shared_table::Mapping> mappings =
      std::vector<shared_table::Mapping>(shared_table::kMappings);
  shared_table::Word lost{0};
  std::unique_ptr<MappingTable> table = std::make_unique<MappingTable>();
};

TEST_F(PreloadTable, TouchesFindsOverlaps) {
  EXPECT_FALSE(table->touches({0, ~std::uint64_t{0}}));
  table->insert(entry(100, 200));
  EXPECT_TRUE(table->touches({150, 151}));
  EXPECT_TRUE(table->touches({0, 101}));
  EXPECT_TRUE(table->touches({199, 300}));
  EXPECT_FALSE(table->touches({0, 100}));
  EXPECT_FALSE(table->touches({200, 300}));
  EXPECT_FALSE(table->touches({}));
}

TEST_F(PreloadTable, RemovingTrimsAndSplits) {
  table->insert(entry(100, 200, 1000));
  table->remove({120, 130});
  EXPECT_EQ(published(), "100-120@1000 130-200@1030");
  table->remove({0, 110});
  EXPECT_EQ(published(), "110-120@1010 130-200@1030");
  table->remove({115, 140});
  EXPECT_EQ(published(), "110-115@1010 140-200@1040");
  table->clear();
  EXPECT_EQ(published(), "");
  EXPECT_TRUE(table->empty());
}

TEST_F(PreloadTable, ANewEntryReplacesOldOnes) {
  table->insert(entry(100, 200));
  table->insert(entry(150, 250, 7));
  EXPECT_EQ(published(), "100-150@0 150-250@7");
}

TEST_F(PreloadTable, TakenEntriesCannotBeFound) {
  table->insert(entry(100, 200));
  const std::uint32_t generation = mappings[0].generation;
  Entry found;
  EXPECT_TRUE(table->find(0, generation, found));
  const std::uint32_t taken = table->take({0, 300});
  EXPECT_FALSE(table->find(0, generation, found));
  EXPECT_EQ(published(), "");
  EXPECT_TRUE(table->touches({100, 101})) << "until the result of the call is known";
  table->give_back(taken);
  EXPECT_EQ(published(), "100-200@0");
  EXPECT_FALSE(table->find(0, generation, found)) << "earlier commands are stale";
  table->drop(table->take({120, 130}));
  EXPECT_EQ(published(), "100-120@0 130-200@30");
  EXPECT_EQ(table->take({120, 130}), 0u);
}

// Thread A unmaps a range. Before it can call drop(), thread B gets the same address from mmap.
TEST_F(PreloadTable, DroppingKeepsEntriesAddedMeanwhile) {
  table->insert(entry(100, 200));
  const std::uint32_t taken = table->take({100, 200});
  table->insert(entry(100, 200, 5));
  table->drop(taken);
  EXPECT_EQ(published(), "100-200@5");
}

TEST_F(PreloadTable, EntriesCanMoveGrowAndShrink) {
  table->insert(entry(100, 200, 10));
  table->move(table->take({100, 200}), {100, 200}, {500, 600}, false);
  EXPECT_EQ(published(), "500-600@10");
  table->move(table->take({500, 600}), {500, 600}, {500, 900}, false);
  EXPECT_EQ(published(), "500-900@10");
  table->move(table->take({500, 900}), {500, 900}, {500, 510}, false);
  EXPECT_EQ(published(), "500-510@10");
  table->move(table->take({500, 510}), {500, 510}, {700, 710}, true);
  EXPECT_EQ(published(), "500-510@10 700-710@10");
}

TEST_F(PreloadTable, SeveralEntriesMoveTogether) {
  table->insert(entry(100, 120, 0));
  table->insert(entry(140, 200, 40));
  table->move(table->take({100, 200}), {100, 200}, {1100, 1150}, false);
  EXPECT_EQ(published(), "1100-1120@0 1140-1150@40");
}

TEST_F(PreloadTable, AFullTableCountsLostEntries) {
  for (std::uint64_t i = 0; i < shared_table::kMappings; ++i)
    table->insert(entry(i * 10 + 1, i * 10 + 9));
  EXPECT_EQ(lost, 0u);
  table->insert(entry(1'000'000'000, 1'000'000'001));
  EXPECT_EQ(lost, 1u);
  EXPECT_FALSE(table->touches({1'000'000'000, 1'000'000'001}));
  table->remove({4, 5});  // no room for the upper part
  EXPECT_EQ(lost, 2u);
  EXPECT_TRUE(table->touches({1, 2}));
  EXPECT_FALSE(table->touches({5, 9}));
}

TEST_F(PreloadTable, AChildHasTheEntriesThatWereNotTaken) {
  table->insert(entry(100, 200));
  table->insert(entry(300, 400));
  table->take({100, 200});
  table->after_fork();
  auto own = std::make_unique<shared_table::Process>();
  std::vector<shared_table::Mapping> own_mappings(shared_table::kMappings);
  table->publish_on({own.get(), own_mappings.data(), &lost});
  EXPECT_FALSE(table->touches({100, 200}));
  EXPECT_TRUE(table->touches({300, 400}));
  EXPECT_EQ(own->mappings_used, 2u);
  EXPECT_EQ(own_mappings[0].state, shared_table::kEmpty);
  EXPECT_EQ(own_mappings[1].begin, 300u);
}

TEST_F(PreloadTable, FlagsReachTheToolWithoutANewGeneration) {
  table->insert(entry(100, 200));
  const std::uint32_t generation = mappings[0].generation;
  table->add_flags({150, 160}, shared_table::kWritable);
  EXPECT_EQ(mappings[0].flags, shared_table::kWritable);
  EXPECT_EQ(mappings[0].generation, generation);
  table->add_flags({200, 300}, shared_table::kAdvised);
  EXPECT_EQ(mappings[0].flags, shared_table::kWritable);
}

// Each thread has its own range and must find the entries that it has put there. One more thread
// reads like the tool, and another like the thread that carries out commands.
TEST_F(PreloadTable, ThreadsFindTheirOwnEntries) {
  Lock lock;
  std::atomic<bool> over{false};
  std::atomic<int> missed{0}, torn{0};
  const auto map_and_unmap = [&](std::uint64_t base) {
    for (int i = 0; i < 2000; ++i) {
      {
        const Locked locked(lock);
        table->insert(entry(base, base + 100, base));
      }
      if (!table->touches({base + 50, base + 60})) ++missed;
      {
        const Locked locked(lock);
        table->remove({base + 20, base + 30});  // may move the upper part to a lower slot
      }
      if (!table->touches({base + 50, base + 60}) || !table->touches({base, base + 10})) ++missed;
      std::uint32_t taken;
      {
        const Locked locked(lock);
        taken = table->take({base, base + 100});
      }
      const Locked locked(lock);
      table->drop(taken);
    }
  };
  const auto read_as_the_tool = [&] {
    while (!over) {
      for (std::uint32_t i = 0; i < process->mappings_used; ++i) {
        const shared_table::Mapping& from = mappings[i];
        if (from.state.load(std::memory_order_acquire) != shared_table::kFilled) continue;
        const std::uint32_t generation = from.generation.load(std::memory_order_acquire);
        const std::uint64_t begin = from.begin.load(std::memory_order_acquire);
        const std::uint64_t offset = from.offset.load(std::memory_order_acquire);
        const bool settled = from.generation.load(std::memory_order_acquire) == generation &&
                             from.state.load(std::memory_order_acquire) == shared_table::kFilled;
        if (settled && begin != offset) ++torn;
      }
    }
  };
  const auto carry_out_commands = [&] {
    while (!over) {
      const Locked locked(lock);
      Entry found;
      for (std::uint32_t i = 0; i < 8; ++i) {
        if (table->find(i, mappings[i].generation, found) && found.begin != found.offset) {
          ++torn;
        }
      }
    }
  };
  std::thread tool(read_as_the_tool), commands(carry_out_commands);
  {
    std::vector<std::jthread> threads;
    for (std::uint64_t i = 1; i <= 4; ++i) threads.emplace_back(map_and_unmap, i * 1000);
  }
  over = true;
  tool.join();
  commands.join();
  EXPECT_EQ(missed, 0);
  EXPECT_EQ(torn, 0);
  EXPECT_TRUE(table->empty());
}

}  // namespace
}  // namespace evenkeel::preload
