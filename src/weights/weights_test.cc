// labels: threads
#include "evenkeel/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <thread>

#include "base/memory.h"
#include "base/sys.h"
#include "engine/recorded_reads.h"
#include "format/test_files.h"
#include "tests/fault_script.h"
#include "tests/forked.h"
#include "weights/fresh_pages.h"
#include "weights/group_reader.h"

namespace evenkeel {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string random_bytes(std::size_t count, unsigned seed) {
  std::mt19937_64 random(seed);
  std::string bytes(count, '\0');
  for (std::size_t i = 0; i < count; i += 8) {
    const std::uint64_t eight = random();
    std::memcpy(bytes.data() + i, &eight, std::min<std::size_t>(8, count - i));
  }
  return bytes;
}

struct Given {
  std::string name;
  std::string bytes;
};

// A safetensors file with these tensors of bytes, in this order.
std::string file_of(const std::vector<Given>& tensors) {
  std::string header = "{";
  std::uint64_t place = 0;
  for (const Given& tensor : tensors) {
    header += (place || header.size() > 1 ? ",\"" : "\"") + tensor.name +
              R"(":{"dtype":"U8","shape":[)" + std::to_string(tensor.bytes.size()) +
              R"(],"data_offsets":[)" + std::to_string(place) + "," +
              std::to_string(place + tensor.bytes.size()) + "]}";
    place += tensor.bytes.size();
  }
  header += "}";
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(header.size() >> (8 * i) & 255);
  bytes += header;
  for (const Given& tensor : tensors) bytes += tensor.bytes;
  return bytes;
}

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class WeightsTest : public FileTest {
 protected:
  // Small and large tensors, at unaligned offsets.
  static const std::vector<Given>& given() {
    static const std::vector<Given> tensors = {
        {"a", random_bytes(1, 1)},
        {"large", random_bytes((3 << 20) + 12345, 2)},
        {"none", ""},
        {"b", random_bytes(70'001, 3)},
        {"larger", random_bytes(5 << 20, 4)},
        {"c", random_bytes(4096, 5)},
    };
    return tensors;
  }
  const std::vector<Given>& given_ = given();
  const std::string file_ = write("model.safetensors", file_of(given_));
};

TEST_F(WeightsTest, EveryEngineReadsTheSame) {
  for (const EngineKind engine : {EngineKind::kAuto, EngineKind::kDirect, EngineKind::kRead}) {
    const Weights weights = Weights::open(file_, {.budget = Budget(16_MiB), .engine = engine});
    std::vector<const Tensor*> all;
    for (const Tensor& tensor : weights.tensors()) all.push_back(&tensor);
    const std::vector<LoadedTensor> loaded = weights.load(all);
    ASSERT_EQ(loaded.size(), given_.size());
    for (std::size_t i = 0; i < loaded.size(); ++i) {
      const Tensor& tensor = *all[i];
      EXPECT_EQ(text_of(loaded[i].bytes()), given_[i].bytes) << tensor.name;
      std::string own(tensor.bytes, '\0');
      weights.read(tensor, std::as_writable_bytes(std::span(own)));
      EXPECT_EQ(own, given_[i].bytes) << tensor.name;
    }
  }
}

TEST_F(WeightsTest, LargeTensorsAreReadInPlace) {
  const Weights weights =
      Weights::open(file_, {.budget = Budget(16_MiB), .engine = EngineKind::kDirect});
  const Tensor& large = weights.at("large");
  const Tensor* wanted[] = {&large};
  const auto loaded = weights.load(wanted);
  const auto address = reinterpret_cast<std::uintptr_t>(loaded[0].bytes().data());
  EXPECT_EQ(address % sys::page_size(), large.offset % sys::page_size());
  // Only the rest of the first and the last block is read in addition.
  EXPECT_LE(weights.stats().bytes_from_disk, large.bytes + 2 * sys::page_size());
}

TEST_F(WeightsTest, NamesThatAreNotThere) {
  const Weights weights = Weights::open(file_, {.budget = Budget(16_MiB)});
  EXPECT_EQ(weights.find("nothing"), nullptr);
  try {
    weights.at("lrage");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kIndex);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("no tensor \"lrage\" among 6"),
                                    HasSubstr("did you mean \"large\"?")));
  }
}

TEST_F(WeightsTest, ANameThatIsNotSimilarIsNotSuggested) {
  const Weights weights = Weights::open(write("two.safetensors", file_of({{"large", "x"}})),
                                        {.budget = Budget(16_MiB)});
  try {
    weights.at("norm");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.hint_text(), "all names are in tensors");
  }
}

TEST_F(WeightsTest, TheClosestNameIsShownInFull) {
  const std::string name =
      "vision_tower.vision_model.encoder.layers.12.self_attn.q_proj.weight_scale";
  const Weights weights =
      Weights::open(write("long.safetensors", file_of({{name, "x"}})), {.budget = Budget(16_MiB)});
  try {
    weights.at(name.substr(1));
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("did you mean \"" + name + "\"?"));
  }
}

TEST_F(WeightsTest, ATensorAsAnArray) {
  const Weights weights = Weights::open(file_, {.budget = Budget(16_MiB)});
  const Array array = weights.array(weights.at("b"));
  EXPECT_THAT(array.shape(), ElementsAre(70'001));
  std::string some(1000, '\0');
  array.read(500, 1000, std::as_writable_bytes(std::span(some)));
  EXPECT_EQ(some, given_[3].bytes.substr(500, 1000));
}

TEST_F(WeightsTest, MemoryOfAnotherSizeIsRefused) {
  const Weights weights = Weights::open(file_, {.budget = Budget(16_MiB)});
  std::vector<std::byte> small(3);
  EXPECT_THROW(weights.read(weights.at("b"), small), Error);
}

TEST_F(WeightsTest, ShardsAndTheirIndex) {
  write("1.safetensors", file_of({{"x", "xx"}, {"y", "y"}}));
  write("2.safetensors", file_of({{"z", "zzz"}, {"left out", "?"}}));
  const auto index = [&](const std::string& files) {
    return write("shards.safetensors.index.json", R"({"weight_map":{)" + files + "}}");
  };
  const std::string path = index(R"("z":"2.safetensors","x":"1.safetensors","y":"1.safetensors")");
  const Weights weights = Weights::open(path, {.budget = Budget(16_MiB)});
  ASSERT_EQ(weights.tensors().size(), 3u);
  for (const char* name : {"x", "y", "z"}) {
    const Tensor& tensor = weights.at(name);
    std::string bytes(tensor.bytes, '\0');
    weights.read(tensor, std::as_writable_bytes(std::span(bytes)));
    EXPECT_EQ(bytes, std::string(bytes.size(), name[0]));
  }
  EXPECT_EQ(weights.find("left out"), nullptr);
  index(R"("x":"2.safetensors")");
  try {
    Weights::open(path, {.budget = Budget(16_MiB)});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("which does not have it"));
  }
}

TEST_F(WeightsTest, AShardWithoutItsTensorIsNamedInFull) {
  const std::string folder(100, 'd');
  std::filesystem::create_directory(path(folder));
  const std::string shard = write(folder + "/1.safetensors", file_of({{"x", "xx"}}));
  const std::string index =
      write(folder + "/model.safetensors.index.json", R"({"weight_map":{"y":"1.safetensors"}})");
  try {
    Weights::open(index, {.budget = Budget(16_MiB)});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("tensor \"y\" is in " + shard + ", which does not"));
  }
}

TEST_F(WeightsTest, TwoFilesWithTheSameNameAreRefused) {
  write("s1.safetensors", file_of({{"x", "xx"}}));
  write("s2.safetensors", file_of({{"x", "yy"}}));
  EXPECT_THROW(Weights::open(path("s*.safetensors"), {.budget = Budget(16_MiB)}), Error);
}

TEST_F(WeightsTest, TheFolderOfAModel) {
  const std::string folder = std::string(file_, 0, file_.rfind('/'));
  EXPECT_EQ(Weights::open(folder, {.budget = Budget(16_MiB)}).paths().front(), file_);
}

TEST_F(WeightsTest, AFileThatChangesIsAnError) {
  const Weights weights = Weights::open(file_, {.budget = Budget(16_MiB)});
  const Tensor& large = weights.at("large");
  std::vector<std::byte> out(large.bytes);
  weights.read(large, out);
  std::filesystem::resize_file(file_, large.offset + 10);
  EXPECT_THROW(weights.read(large, out), Error);
}

void overwrite(const std::string& path, std::string_view bytes) {
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary) << bytes;
  const auto then = std::filesystem::last_write_time(path);
  std::filesystem::last_write_time(path, then + std::chrono::seconds(1));
}

TEST_F(WeightsTest, AFileOverwrittenInPlaceIsAnError) {
  for (const EngineKind engine : {EngineKind::kDirect, EngineKind::kRead}) {
    const std::string file = write("changing.safetensors", file_of(given_));
    const Weights weights = Weights::open(file, {.budget = Budget(16_MiB), .engine = engine});
    const auto impl = WeightsInternals::share(weights);
    const Tensor& large = weights.at("large");
    std::vector<std::byte> out(large.bytes);
    const JobRun run = impl->run_of(large, out.data());
    GroupReader reader(impl, {{{run}, false}, {{run}, false}}, 1);
    EXPECT_TRUE(reader.next());
    overwrite(file, file_of(given_));
    reader.release();
    EXPECT_THROW(reader.next(), Error);  // although the second group was read
    EXPECT_THROW(reader.next(), Error);
  }
}

TEST_F(WeightsTest, MemoryThatIsNotRoomyAfterAllIsRightAllTheSame) {
  const Weights weights =
      Weights::open(file_, {.budget = Budget(16_MiB), .engine = EngineKind::kDirect});
  const auto impl = WeightsInternals::share(weights);
  const Tensor& large = weights.at("large");
  std::string out(large.bytes + 3, '?');  // no room around it, and not aligned as the file
  const JobRun run = impl->run_of(large, reinterpret_cast<std::byte*>(out.data() + 1));
  GroupReader reader(impl, {{{run}, true}}, 1);
  EXPECT_TRUE(reader.next());
  EXPECT_FALSE(reader.next());
  EXPECT_EQ(out, "?" + given_[1].bytes + "??");
}

TEST_F(WeightsTest, ReadsNoMoreAtATimeThanAsked) {
  RecordedReads reads;
  const Weights weights =
      Weights::open(file_, {.budget = Budget(16_MiB), .engine = EngineKind::kDirect});
  const auto impl = WeightsInternals::share(weights);
  const Tensor& large = weights.at("large");
  const std::uint64_t alignment = impl->engine->limits().alignment;
  const std::uint64_t lead = large.offset % alignment;
  for (const std::uint64_t most : {1_MiB, 4_MiB, 64_MiB}) {
    std::vector<Pages> pages;
    std::vector<ReadGroup> groups;
    for (int i = 0; i < 6; ++i) {
      pages.emplace_back(lead + large.bytes + alignment, "a test");
      groups.push_back({{impl->run_of(large, pages.back().data() + lead)}, true});
    }
    reads.take();
    GroupReader reader(impl, std::move(groups), 6, most);
    for (int i = 0; i < 6; ++i) EXPECT_TRUE(reader.next());
    EXPECT_FALSE(reader.next());
    EXPECT_LE(reads.most_in_flight(), most + impl->engine->limits().max_request);
    EXPECT_GE(reads.most_in_flight(), std::min(most, 6 * large.bytes));
    EXPECT_THAT(reads.take(), testing::Each(testing::Truly(begins_at_page)));
    for (const Pages& one : pages) {
      EXPECT_EQ(text_of(std::span(one.data() + lead, large.bytes)), given_[1].bytes);
    }
  }
}

TEST_F(WeightsTest, TensorsAreReadIntoPages) {
  RecordedReads reads;
  const Weights weights =
      Weights::open(file_, {.budget = Budget(16_MiB), .engine = EngineKind::kDirect});
  const Tensor* const large = &weights.at("large");
  const auto loaded = weights.load(std::span(&large, 1));
  EXPECT_EQ(text_of(loaded[0].bytes()), given_[1].bytes);
  const std::vector<ReadOp> made = reads.take();
  EXPECT_GE(made.size(), 4u);
  EXPECT_THAT(made, testing::Each(testing::Truly(begins_at_page)));
}

TEST_F(WeightsTest, AnArrayIsOfTheFileThatWasOpened) {
  const std::string file = write("renamed.safetensors", file_of(given_));
  const Weights weights = Weights::open(file, {.budget = Budget(16_MiB)});
  std::vector<Given> others = given_;
  for (Given& other : others) other.bytes.assign(other.bytes.size(), 'o');
  std::filesystem::rename(write("other.safetensors", file_of(others)), file);
  const Array array = weights.array(weights.at("b"));
  std::string all(given_[3].bytes.size(), '\0');
  array.read(0, all.size(), std::as_writable_bytes(std::span(all)));
  EXPECT_EQ(all, given_[3].bytes);
}

TEST_F(WeightsTest, TensorsOfOthersAreRefused) {
  const Weights weights = Weights::open(file_, {.budget = Budget(16_MiB)});
  const auto refuses = [&](Tensor tensor) {
    std::vector<std::byte> out(tensor.bytes);
    const Tensor* wanted[] = {&tensor};
    for (const std::function<void()>& use : std::initializer_list<std::function<void()>>{
             [&] { weights.read(tensor, out); }, [&] { weights.load(wanted); },
             [&] { weights.array(tensor); }}) {
      try {
        use();
        ADD_FAILURE();
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::kInvalid);
        EXPECT_THAT(error.what(), HasSubstr("is not in these files"));
      }
    }
  };
  Tensor tensor = weights.at("b");
  tensor.file = 1;
  refuses(tensor);
  tensor.file = 0;
  tensor.offset += std::filesystem::file_size(file_);
  refuses(tensor);
}

TEST_F(WeightsTest, RowsWithoutBytesAreNoArray) {
  const std::string header = R"({"none":{"dtype":"F32","shape":[5,0],"data_offsets":[0,0]}})";
  std::string bytes(1, static_cast<char>(header.size()));
  const Weights weights = Weights::open(write("none.safetensors", bytes.append(7, '\0') + header),
                                        {.budget = Budget(16_MiB)});
  try {
    weights.array(weights.at("none"));
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("\"none\" of shape (5, 0): its rows have no bytes"));
  }
  const Tensor* wanted[] = {&weights.at("none")};
  EXPECT_TRUE(weights.load(wanted).front().bytes().empty());
}

TEST_F(WeightsTest, FreshPagesBecomeResidentAndKeepWhatTheyHold) {
  const std::uint64_t page = sys::page_size();
  const Pages pages(10_MiB + 2 * page, "a test");
  const std::span<std::byte> span(pages.data() + 100, 10_MiB);
  span.front() = span.back() = std::byte{7};
  FreshPages fresh({span.first(3_MiB), span.subspan(3_MiB)});
  if (::madvise(pages.data(), page, 23) == 0) {  // MADV_POPULATE_WRITE, since Linux 5.14
    std::vector<unsigned char> resident(pages.size() / page);
    do {
      ASSERT_EQ(::mincore(pages.data(), 10_MiB, resident.data()), 0);
      std::this_thread::yield();
    } while (std::ranges::count_if(resident, [](unsigned char one) { return one & 1; }) <
             static_cast<std::ptrdiff_t>(10_MiB / page));
  }
  fresh.stop();
  fresh.stop();
  EXPECT_EQ(span.front(), std::byte{7});
  EXPECT_EQ(span.back(), std::byte{7});
  EXPECT_EQ(span[5_MiB], std::byte{0});
}

TEST_F(WeightsTest, ReadingThatIsLeftEndsAtOnce) {
  Weights weights = Weights::open(file_, {.budget = Budget(16_MiB)});
  const auto impl = WeightsInternals::share(weights);
  const Tensor& large = weights.at("large");
  std::vector<std::byte> out(large.bytes);
  const JobRun run{impl->row_of(0, large.offset), large.bytes, out.data()};
  GroupReader reader(impl, {{{run}, false}, {{run}, false}, {{run}, false}}, 1);
  EXPECT_TRUE(reader.next());
  reader.release();
  EXPECT_TRUE(reader.next());
  reader.close();  // the third group was not allowed yet
  EXPECT_THROW(reader.next(), Error);
  EXPECT_EQ(text_of(out), given_[1].bytes);
}

TEST_F(WeightsTest, AChildOfForkCountsWhatItReadsItself) {
  const Weights weights =
      Weights::open(file_, {.budget = Budget(16_MiB), .engine = EngineKind::kDirect});
  std::string own(weights.at("large").bytes, '\0');
  weights.read(weights.at("large"), std::as_writable_bytes(std::span(own)));
  EXPECT_GT(weights.stats().bytes_from_disk, 3u << 20);
  EXPECT_EQ(in_child([&] { return std::to_string(weights.stats().bytes_from_disk); }), "0");
}

// It was std::system_error, which callers of this library do not catch.
TEST_F(WeightsTest, WithoutItsThreadAReadIsAnError) {
  const Weights weights = Weights::open(file_, {.budget = Budget(16_MiB)});
  const Tensor& tensor = weights.at("b");
  std::string own(tensor.bytes, '\0');
  {
    FaultScript script;
    script.spoil(sys::Call::kThreadStart, 0, {.error = EAGAIN}, true);
    try {
      weights.read(tensor, std::as_writable_bytes(std::span(own)));
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::kSystem);
      EXPECT_EQ(error.code(), EAGAIN);
      EXPECT_THAT(error.what(), HasSubstr("a thread cannot be started"));
    }
  }
  weights.read(tensor, std::as_writable_bytes(std::span(own)));
  EXPECT_EQ(own, given_[3].bytes);
}

TEST_F(WeightsTest, GivesItsShareBack) {
  const Budget budget(16_MiB);
  {
    Weights weights = Weights::open(file_, {.budget = budget});
    EXPECT_GT(budget.in_use(), 0u);
    std::vector<const Tensor*> all;
    for (const Tensor& tensor : weights.tensors()) all.push_back(&tensor);
    const std::uint64_t before = budget.in_use();
    weights.load(all);
    EXPECT_EQ(budget.in_use(), before);
    weights.close();
    weights.close();
    EXPECT_THROW(weights.tensors(), Error);
    EXPECT_THROW(weights.load({}), Error);
  }
  EXPECT_EQ(budget.in_use(), 0u);
}

}  // namespace
}  // namespace evenkeel
