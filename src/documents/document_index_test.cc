// labels: reads
#include "documents/document_index.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "documents/find_tokens.h"
#include "documents/packs.h"
#include "evenkeel/bytes.h"
#include "format/token_test_files.h"
#include "tests/temp_folder.h"

namespace evenkeel {
namespace {

class Documents : public testing::Test {
 protected:
  // Several files with `counts` tokens, each with an index of its documents.
  std::shared_ptr<const DocumentIndex> open(const std::vector<std::vector<std::uint64_t>>& starts,
                                            const std::vector<std::uint64_t>& counts,
                                            const Budget& budget) {
    std::vector<std::string> paths;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      const std::string name = "f" + std::to_string(i) + ".ds";
      paths.push_back(folder_.write(name, std::string(counts[i] * 2, 'x')));
      std::vector<std::uint64_t> ends(starts[i].begin() + 1, starts[i].end());
      ends.push_back(counts[i]);
      folder_.write(name + ".index", le_all<std::uint64_t>(ends));
    }
    layout_ = read_token_layout(paths, {});
    return DocumentIndex::open(layout_.layout, layout_.files, {}, budget);
  }

  TempFolder folder_;
  TokenLayout layout_;
};

RC_GTEST_FIXTURE_PROP(Documents, LookupsAreThoseOfASortedList, ()) {
  // Files of up to 3,000 documents: several blocks of the index, few of which are cached.
  const auto files = *rc::gen::inRange<std::size_t>(1, 4);
  std::vector<std::vector<std::uint64_t>> starts(files);
  std::vector<std::uint64_t> counts(files), all;
  std::uint64_t before = 0;
  for (std::size_t i = 0; i < files; ++i) {
    const auto documents = *rc::gen::inRange<std::uint64_t>(1, 3000);
    const auto skew = *rc::gen::inRange<std::uint64_t>(1, 9);
    std::uint64_t at = 0;
    for (std::uint64_t d = 0; d < documents; ++d) {
      starts[i].push_back(at);
      all.push_back(before + at);
      at += (d * d % 11) * (d % 700 == 0 ? 50 * skew : 1);  // some are empty, few are long
    }
    counts[i] = at + 5;
    before += counts[i];
  }
  const auto index = open(starts, counts, Budget(1_MiB));
  RC_ASSERT(index->size() == all.size());
  RC_ASSERT(index->tokens() == before);
  DocumentReader reader(index, Budget(1_MiB));
  std::vector<std::uint64_t> tokens;
  for (int i = 0; i < 100; ++i) tokens.push_back(*rc::gen::inRange<std::uint64_t>(0, before));
  std::vector<std::uint64_t> found(tokens.size());
  reader.locate(tokens, found);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto after = std::ranges::upper_bound(all, tokens[i]);
    RC_ASSERT(found[i] == static_cast<std::uint64_t>(after - all.begin()) - 1);
    RC_ASSERT(reader.start(found[i]) == *(after - 1));
    RC_ASSERT(reader.start(found[i] + 1) == (after == all.end() ? before : *after));
  }
  // Documents that lie far apart, and some that do not.
  const auto start_of = [&](std::uint64_t d) { return d < all.size() ? all[d] : before; };
  std::vector<std::uint64_t> wanted;
  const auto distance = *rc::gen::inRange<std::uint64_t>(1, 200);
  for (std::uint64_t d = 0; d < all.size(); d += 1 + d * 31 % distance) wanted.push_back(d);
  std::vector<DocumentReader::Bounds> bounds;
  reader.for_each_of(wanted, [&](std::uint64_t start, std::uint64_t end) {
    bounds.push_back({wanted[bounds.size()], start, end});
  });
  RC_ASSERT(bounds.size() == wanted.size());
  reader.keep(std::span(bounds).first(bounds.size() / 2));
  for (const auto& [document, start, end] : bounds) {
    RC_ASSERT(start == start_of(document));
    RC_ASSERT(end == start_of(document + 1));
    const DocumentReader::Bounds again = reader.bounds(document);
    RC_ASSERT(again.start == start);
    RC_ASSERT(again.end == end);
    for (std::uint64_t i = 0; i < 3; ++i) {
      RC_ASSERT(reader.three_starts(document)[i] == start_of(document + i));
    }
  }
  reader.keep({});
}

TEST_F(Documents, ASliceHasTheDocumentsThatItTouches) {
  const auto index = open({{0, 10, 20}, {0, 7}}, {30, 20}, Budget(1_MiB));
  EXPECT_EQ(index->size(), 5U);
  keep_slice(layout_, 15, 38);
  const auto part = DocumentIndex::open(layout_.layout, layout_.files, {}, Budget(1_MiB));
  DocumentReader reader(part, Budget(1_MiB));
  std::vector<std::uint64_t> starts;
  reader.for_each_start(0, [&](std::uint64_t start) {
    starts.push_back(start);
    return true;
  });
  EXPECT_EQ(starts, (std::vector<std::uint64_t>{0, 5, 15, 22}));
  EXPECT_EQ(reader.locate(4), 0U);
  EXPECT_EQ(reader.locate(22), 3U);
}

// If two processes need the same index, the second finds the one that the first has created.
TEST_F(Documents, AnIndexIsMadeAtomically) {
  const std::string path =
      folder_.write("t.bin", le_all<std::uint16_t>(std::vector<int>{5, 1, 2, 5, 3, 5, 5, 9}));
  const TokenLayout tokens = read_token_layout({path}, {});
  const auto make = [&] {
    return find_stored_index(tokens.files[0], tokens.layout, {5, true}, "", Budget(4_MiB));
  };
  const StoredIndex made = make();
  EXPECT_EQ(made.documents, 4U);
  EXPECT_EQ(made.first, 0U);
  const std::string stored = made.source.path;
  EXPECT_EQ(stored, folder_.path("t.bin.bos5.documents"));
  EXPECT_FALSE(std::filesystem::exists(stored + ".part"));
  // A file that a killed process left behind does not matter.
  std::filesystem::remove(stored);
  folder_.write("t.bin.bos5.documents.part", "half of something");
  EXPECT_EQ(make().documents, 4U);
  EXPECT_FALSE(std::filesystem::exists(stored + ".part"));
  EXPECT_EQ(std::filesystem::file_size(stored), kStoredIndexHeader + 4 * 8);
  // The index of another token has another name.
  const auto other =
      find_stored_index(tokens.files[0], tokens.layout, {5, false}, "", Budget(4_MiB));
  EXPECT_EQ(other.documents, 5U);
  EXPECT_TRUE(std::filesystem::exists(stored));
}

// Somebody who can write to the folder must not be able to have another file overwritten.
TEST_F(Documents, ALinkInPlaceOfTheDraftIsAnError) {
  const std::string path =
      folder_.write("t.bin", le_all<std::uint16_t>(std::vector<int>{5, 1, 2, 5}));
  const std::string other = folder_.write("other", "keep this");
  std::filesystem::create_symlink(other, folder_.path("t.bin.bos5.documents.part"));
  const TokenLayout tokens = read_token_layout({path}, {});
  try {
    find_stored_index(tokens.files[0], tokens.layout, {5, true}, "", Budget(4_MiB));
    FAIL() << "a link was followed";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kSystem);
  }
  EXPECT_EQ(std::filesystem::file_size(other), 9U);
}

TEST_F(Documents, ALongFileMayBeOneDocument) {
  std::vector<int> numbers(1'000'001, 3);
  const std::string without = folder_.write("without.bin", le_all<std::uint16_t>(numbers));
  numbers.back() = 5;
  const std::string with = folder_.write("with.bin", le_all<std::uint16_t>(numbers));
  const auto find = [](const std::string& path) {
    const TokenLayout tokens = read_token_layout({path}, {});
    return find_stored_index(tokens.files[0], tokens.layout, {5, false}, "", Budget(4_MiB));
  };
  EXPECT_EQ(find(with).documents, 1U);
  EXPECT_THROW(find(without), Error);  // most likely the wrong eos
}

TEST(DocumentTokens, AreNumbersThatTheTypeHolds) {
  EXPECT_TRUE(can_hold(DType::of<std::uint16_t>(), 65'535));
  EXPECT_FALSE(can_hold(DType::of<std::uint16_t>(), 65'536));
  EXPECT_FALSE(can_hold(DType::of<std::uint64_t>(), -1));
  EXPECT_TRUE(can_hold(DType::of<std::int16_t>(), -32'768));
  EXPECT_FALSE(can_hold(DType::of<std::int16_t>(), 32'768));
  EXPECT_TRUE(can_hold(DType::of<std::int64_t>(), INT64_MIN));
}

TEST_F(Documents, ReadersShareTheirPartOfTheBudget) {
  std::vector<std::uint64_t> starts(200'000);
  std::iota(starts.begin(), starts.end(), 0);
  const Budget budget(64_MiB);
  const auto index = open({starts}, {200'000}, budget);
  const auto reserved = [&](std::uint64_t sharers) {
    const std::uint64_t before = budget.in_use();
    const DocumentReader reader(index, budget, sharers);
    return budget.in_use() - before;
  };
  // The rest is for blocks that are being read.
  EXPECT_LE(reserved(1), 1_MiB + 192_KiB);
  EXPECT_LE(reserved(8), 1_MiB / 8 + 192_KiB);
}

// Each block of the index is sorted, but the numbers of one block are far too low.
TEST_F(Documents, AnIndexThatContradictsItselfIsAnError) {
  std::vector<std::uint64_t> starts;
  for (std::uint64_t i = 0; i < 5120; ++i) starts.push_back(20 * i);
  for (std::uint64_t i = 0; i < 5120; ++i) starts.push_back(102'400 + i);
  const Budget budget(16_MiB);
  open({starts}, {107'600}, budget);
  // The index is damaged after the tokens were opened.
  for (std::uint64_t i = 0; i < 512; ++i) starts[9 * 512 + i] = 45'000 + i;
  std::vector<std::uint64_t> ends(starts.begin() + 1, starts.end());
  ends.push_back(107'600);
  folder_.write("f0.ds.index", le_all<std::uint64_t>(ends));
  const auto index = DocumentIndex::open(layout_.layout, layout_.files, {}, budget);
  DocumentReader reader(index, budget);
  const Packs packs(*index, 16, 60);
  int wrong = 0;
  for (std::uint64_t window = 0; window < packs.windows(); ++window) {
    try {
      packs.pack(window, reader, budget);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kFormat) << error.what();
      ++wrong;
    }
  }
  EXPECT_GT(wrong, 0);
}

// The index of another file takes the place of the right one after the tokens were opened. With 512
// documents, the last block of the index begins after all of them.
TEST_F(Documents, AnIndexThatEndsBeforeItsFileIsAnError) {
  for (const std::uint64_t documents : {5, 512, 513}) {
    std::vector<std::uint64_t> ends(documents);
    std::iota(ends.begin(), ends.end(), 1);
    const Budget budget(4_MiB);
    open({{0, 500}}, {1024}, budget);
    folder_.write("f0.ds.index", le_all<std::uint64_t>(ends));
    try {
      const auto index = DocumentIndex::open(layout_.layout, layout_.files, {}, budget);
      DocumentReader(index, budget).locate(1000);
      ADD_FAILURE() << documents;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kFormat) << error.what();
      const std::string text = error.what();
      EXPECT_NE(text.find("of the 1,024 of the file"), std::string::npos) << text;
    }
  }
}

TEST_F(Documents, PiecesOfARowComeInStreamOrderAlsoWhereTheyWereSplit) {
  // Six rows take a document of 6 tokens each, and none has room for the first one, of 5.
  const auto index = open({{0, 5, 11, 17, 23, 29, 35}}, {41}, Budget(4_MiB));
  DocumentReader reader(index, Budget(4_MiB));
  const Packs packs(*index, 10, 4);
  const PackedWindow window = packs.pack(0, reader, Budget(4_MiB));
  EXPECT_EQ(Packs::totals(window, 10).split, 1U);
  for (std::uint64_t row = 0; row < window.rows(); ++row) {
    EXPECT_TRUE(std::ranges::is_sorted(window.row(row), {}, &DocumentPiece::start)) << row;
  }
}

// Everything that a run needs is reserved before it starts.
TEST_F(Documents, MemoryOfPackedWindowsIsReservedAtOnce) {
  std::vector<std::uint64_t> starts;
  for (std::uint64_t i = 0; i < 20'000; ++i) starts.push_back(7 * i);
  const auto index = open({starts}, {140'000}, Budget(4_MiB));
  const Budget budget(2_MiB);
  DocumentReader reader(index, budget);
  const Packs packs(*index, 100, 20);
  ASSERT_GT(packs.windows(), 60U);
  PackCache cache(packs, reader, budget, 8);
  const Reservation rest = budget.reserve(budget.left(), "all the rest");
  int made = 0;
  for (std::uint64_t window = 0; window < packs.windows(); ++window) {
    EXPECT_EQ(cache.window(window, [&](const PackedWindow&) { ++made; }).rows(),
              packs.window_rows());
    cache.window(window - window % 8, [&](const PackedWindow&) { ++made; });
  }
  EXPECT_EQ(made, static_cast<int>(packs.windows())) << "a group of windows is cached";
  try {
    const PackCache another(packs, reader, budget, 8);
    FAIL() << "more than the budget";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kBudget);
    EXPECT_NE(error.hint_text().find("mixed_windows"), std::string::npos);
  }
}

TEST_F(Documents, PackingIsWithinTheBudgetOrAnError) {
  std::vector<std::uint64_t> starts(20'000);
  std::iota(starts.begin(), starts.end(), 0);  // documents of one token
  const auto index = open({starts}, {20'000}, Budget(4_MiB));
  const Budget budget(512_KiB);
  DocumentReader reader(index, budget);
  const Packs packs(*index, 1000, 20);
  EXPECT_EQ(packs.windows(), 1U);
  EXPECT_EQ(packs.window_rows(), 21U);
  EXPECT_THROW(packs.pack(0, reader, budget), Error);
  const PackedWindow window = packs.pack(0, reader, Budget(4_MiB));
  const PackTotals totals = Packs::totals(window, 1000);
  EXPECT_EQ(totals.tokens, 20'000U);
  EXPECT_EQ(totals.split, 0U);
}

}  // namespace
}  // namespace evenkeel
