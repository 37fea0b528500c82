// labels: threads
#include "evenkeel/write.h"

#include <gtest/gtest.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <fstream>
#include <numeric>
#include <random>
#include <thread>

#include "base/fault_hook.h"
#include "base/fd.h"
#include "evenkeel/bytes.h"
#include "format/test_files.h"
#include "format/token_test_files.h"
#include "tests/sanitizers.h"
#include "write/checksums.h"
#include "write/file_writer.h"
#include "write/npy_header.h"

namespace evenkeel {
namespace {

std::string contents(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::string noise(std::size_t size, unsigned seed = 1) {
  std::mt19937_64 random(seed);
  std::string bytes(size, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

class WriterTest : public TokenFileTest {
 protected:
  std::vector<std::string> files() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(path(""))) {
      names.push_back(entry.path().filename());
    }
    std::ranges::sort(names);
    return names;
  }
};

using FileWriterTest = WriterTest;

class SlowWrites final : public sys::FaultHook {
 public:
  SlowWrites() { sys::fault_hook = this; }
  ~SlowWrites() { sys::fault_hook = nullptr; }
  SlowWrites(const SlowWrites&) = delete;
  SlowWrites& operator=(const SlowWrites&) = delete;
  sys::Fault on(sys::Call call) override {
    if (call == sys::Call::kPwrite) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    return {};
  }
};

// As a signal handler of Python may do. The child waited forever for the parent's threads.
TEST_F(FileWriterTest, AWaitThatForksGoesOnInTheParentAlone) {
  if (kUnderTsan || kUnderAsan) GTEST_SKIP() << "sanitizers do not support fork with threads";
  const SlowWrites slow;
  pid_t child = -1;
  const std::string wanted = noise(100'000);
  FileWriter writer(path("f"), {.budget = Budget(100'000), .while_waiting = [&] {
                                  if (child != -1) return;
                                  child = ::fork();
                                  if (child == 0) ::alarm(20);
                                }});
  try {
    writer.append(bytes_of(wanted));
    if (child == 0) ::_exit(1);
  } catch (const Error& error) {
    if (child == 0) ::_exit(error.kind() == ErrorKind::kClosed ? 0 : 2);
    throw;
  }
  writer.complete();
  writer.commit();
  EXPECT_EQ(contents(path("f")), wanted);
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

// Appends of odd lengths, changes at random places and a gap have the same effect as on a string.
TEST_F(FileWriterTest, IsWhatAStringWouldBe) {
  for (const bool direct : {true, false}) {
    for (const std::uint64_t budget :
         {std::uint64_t{40'000}, std::uint64_t{1_MiB}, std::uint64_t{64_MiB}}) {
      std::filesystem::remove(path("f"));
      std::mt19937_64 random(budget);
      std::string wanted;
      const std::string data = noise(100'000);
      FileWriter writer(path("f"), {.budget = budget + 1_MiB,
                                    .memory = budget / 2,
                                    .checksums = true,
                                    .allow_direct = direct});
      for (int i = 0; i < 40; ++i) {
        const auto some = std::string_view(data).substr(0, random() % data.size());
        const std::uint64_t at =
            i % 3 == 0 ? wanted.size() : random() % (wanted.size() + (i % 10 == 1 ? 9'000 : 1));
        if (wanted.size() < at + some.size()) wanted.resize(at + some.size());
        wanted.replace(at, some.size(), some);
        writer.write_at(at, bytes_of(some));
        ASSERT_EQ(writer.size(), wanted.size());
        if (i % 7 != 0 || some.empty()) continue;
        std::string back(some.size(), '\0');
        writer.read_at(at, std::as_writable_bytes(std::span(back)));
        ASSERT_EQ(back, some);
      }
      writer.complete();
      EXPECT_FALSE(std::filesystem::exists(path("f")));
      writer.commit();
      EXPECT_TRUE(contents(path("f")) == wanted) << direct << " " << budget;
      const Checksums checksums = Checksums::read(path("f.xxh3"));
      ASSERT_EQ(checksums.file_bytes, wanted.size());
      for (std::size_t i = 0; i < checksums.blocks.size(); ++i) {
        EXPECT_EQ(checksums.blocks[i],
                  xxh3(bytes_of(std::string_view(wanted).substr(i << 20, 1 << 20))));
      }
      EXPECT_EQ(files(), (std::vector<std::string>{"f", "f.xxh3"}));
    }
  }
}

TEST_F(FileWriterTest, LeavesTheOldFileUntilItIsComplete) {
  write("f", "old");
  {
    FileWriter writer(path("f"), {.budget = 1_MiB});
    writer.append(bytes_of(noise(500'000)));
    EXPECT_EQ(contents(path("f")), "old");
  }
  EXPECT_EQ(contents(path("f")), "old");
  EXPECT_EQ(files(), std::vector<std::string>{"f"});
}

TEST_F(FileWriterTest, ResumesAtTheCheckpoint) {
  const std::string data = noise(700'000);
  {
    FileWriter writer(path("f"), {.budget = 1_MiB});
    writer.append(bytes_of(data).first(333'333));
    writer.save({0, "kind", "1 2", "line\nand \\ more"});
    writer.append(bytes_of(noise(100'000, 7)));  // lost
  }
  EXPECT_EQ(files(), (std::vector<std::string>{"f.partial", "f.partial.state"}));
  FileWriter writer(path("f"), {.budget = 2_MiB, .checksums = true, .resume = true});
  ASSERT_TRUE(writer.checkpoint());
  EXPECT_EQ(writer.size(), 333'333u);
  EXPECT_EQ(writer.checkpoint()->state, "line\nand \\ more");
  EXPECT_EQ(writer.checkpoint()->kind, "kind");
  writer.append(bytes_of(data).subspan(333'333));
  writer.complete();
  writer.commit();
  EXPECT_TRUE(contents(path("f")) == data);
  EXPECT_EQ(Checksums::read(path("f.xxh3")).blocks, std::vector{xxh3(bytes_of(data))});
  EXPECT_EQ(files(), (std::vector<std::string>{"f", "f.xxh3"}));
}

// A checkpoint that cannot be read (too many open files, a failing disk) does not count as missing.
TEST_F(FileWriterTest, ACheckpointThatCannotBeReadIsNotDropped) {
  write("f.partial", "unfinished");
  std::filesystem::create_directory(path("f.partial.state"));
  EXPECT_THROW(FileWriter(path("f"), {.resume = true}), Error);
  EXPECT_THROW(OutputFile(path("f"), OutputFile::ReadOnly{}), Error);
  EXPECT_EQ(contents(path("f.partial")), "unfinished");
}

TEST_F(FileWriterTest, RefusesASecondWriterAndFolders) {
  const FileWriter writer(path("f"), {.budget = 1_MiB});
  EXPECT_THROW(FileWriter(path("f"), {.budget = 1_MiB}), Error);
  EXPECT_TRUE(std::filesystem::exists(path("f.partial")));
  EXPECT_THROW(FileWriter(path(""), {.budget = 1_MiB}), Error);
  EXPECT_THROW(FileWriter(path("nowhere/f"), {.budget = 1_MiB}), Error);
  EXPECT_THROW(FileWriter(path("g"), {.budget = 4096}), Error);
  EXPECT_EQ(files(), std::vector<std::string>{"f.partial"});
}

TEST_F(FileWriterTest, DoesNotFollowALinkOfTheUnfinishedName) {
  write("victim", "precious");
  std::filesystem::create_symlink(path("victim"), path("f.partial"));
  EXPECT_THROW(FileWriter(path("f"), {.budget = 1_MiB}), Error);
  FileWriter writer(path("g"), {.budget = 1_MiB});
  std::filesystem::create_symlink(path("victim"), path("g.partial.state.new"));
  EXPECT_THROW(writer.save({0, "kind", "", ""}), Error);
  EXPECT_EQ(contents(path("victim")), "precious");
}

// It would replace /dev/null if -o is /dev/stdout and stdout goes there.
TEST_F(FileWriterTest, ALinkToAnythingButAFileIsRefused) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  std::filesystem::create_directory(path("folder"));
  for (const char* target : {"pipe", "folder"}) {
    std::filesystem::create_symlink(target, path("link"));
    EXPECT_THROW(FileWriter(path("link"), {.budget = 1_MiB}), Error) << target;
    std::filesystem::remove(path("link"));
  }
}

// A process that is killed while it saves leaves such a file.
TEST_F(FileWriterTest, RemovesHalfACheckpoint) {
  FileWriter writer(path("f"), {.budget = 1_MiB});
  writer.save({0, "kind", "", ""});
  write("f.partial.state.new", "half");
  writer.complete();
  writer.commit();
  EXPECT_FALSE(std::filesystem::exists(path("f.partial.state.new")));
}

// Memory that is needed at the end is reserved at the beginning.
TEST_F(FileWriterTest, ClosesWhenTheBudgetIsUsedUp) {
  const Budget budget = 4_MiB;
  FileWriter writer(path("f"), {.budget = budget, .checksums = true});
  TokenWriterOptions options;
  options.budget = budget;
  options.format = "megatron";
  TokenWriter tokens = TokenWriter::create(path("t"), options);
  const Reservation rest = budget.reserve(budget.left(), "all that is left");
  const std::string data = noise(1'500'000);
  writer.append(bytes_of(data));
  writer.complete();
  writer.commit();
  EXPECT_EQ(
      Checksums::read(path("f.xxh3")).blocks,
      (std::vector{xxh3(bytes_of(data).first(1 << 20)), xxh3(bytes_of(data).subspan(1 << 20))}));
  tokens.append(std::vector<std::int64_t>(5'000, 7));
  tokens.close();
  EXPECT_EQ(contents(path("t.idx")), MegatronIndex::of({5'000}, 8, 2).bytes());
}

TEST_F(FileWriterTest, AFullDiskIsAnErrorWithNumbers) {
  FileWriter writer(path("f"), {.budget = 1_MiB});
  try {
    writer.expect_size(std::uint64_t{1} << 60);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::kSystem);
    EXPECT_NE(std::string(error.what()).find("1,152,921,504,606,846,976 bytes"), std::string::npos)
        << error.what();
    EXPECT_FALSE(error.hint_text().empty());
  }
}

using ArrayWriterTest = WriterTest;

TEST_F(ArrayWriterTest, WritesWhatTheReaderReads) {
  std::vector<float> values(30'000);
  std::iota(values.begin(), values.end(), 0.0F);
  ArrayWriterOptions options;
  options.budget = 1_MiB;
  options.shape = {-1, 3};
  ArrayWriter writer = ArrayWriter::create(path("a.npy"), options);
  writer.append(std::span<const float>(values).first(3'000));
  writer.append(std::span<const float>(values).subspan(3'000));
  const std::array<float, 6> changed{1, 2, 3, 4, 5, 6};
  writer.assign(7, std::span<const float>(changed));
  std::copy(changed.begin(), changed.end(), values.begin() + 21);
  EXPECT_EQ(writer.shape(), (std::vector<std::uint64_t>{10'000, 3}));
  EXPECT_THROW(writer.assign(10'001, std::span<const float>(changed)), Error);
  EXPECT_THROW(writer.append(std::span<const float>(changed).first(4)), Error);
  EXPECT_THROW(writer.append(std::span<const double>()), Error);
  writer.close();
  writer.close();
  EXPECT_THROW(writer.append(std::span<const float>(changed)), Error);
  const Layout layout = read_layout({path("a.npy")}, {});
  EXPECT_EQ(layout.shape, (std::vector<std::uint64_t>{10'000, 3}));
  EXPECT_EQ(layout.dtype, DType::of<float>());
  EXPECT_TRUE(payload(layout) ==
              std::string(reinterpret_cast<const char*>(values.data()), 120'000));
}

TEST_F(ArrayWriterTest, AFixedNumberOfRowsIsWrittenInAnyOrder) {
  ArrayWriterOptions options;
  options.budget = 1_MiB;
  options.dtype = DType::of<std::uint8_t>();
  options.shape = {100'000};
  ArrayWriter writer = ArrayWriter::create(path("a.bin"), options);
  writer.assign(50'000, bytes_of("middle"));
  writer.assign(10, bytes_of("begin"));
  writer.append(bytes_of("next"));
  EXPECT_EQ(writer.rows(), 50'010u);
  EXPECT_THROW(writer.assign(99'999, bytes_of("ab")), Error);
  writer.close();
  std::string wanted(100'000, '\0');
  wanted.replace(50'000, 10, "middlenext").replace(10, 5, "begin");
  EXPECT_TRUE(contents(path("a.bin")) == wanted);
}

TEST_F(ArrayWriterTest, AnotherArrayIsNotResumed) {
  ArrayWriterOptions options;
  options.budget = 1_MiB;
  options.shape = {-1, 2};
  {
    ArrayWriter writer = ArrayWriter::create(path("a.npy"), options);
    writer.append(std::span<const float>(std::array<float, 4>{1, 2, 3, 4}));
    writer.checkpoint("here");
  }
  options.resume = true;
  options.shape = {-1, 4};
  EXPECT_THROW(ArrayWriter::create(path("a.npy"), options), Error);
  options.shape = {-1, 2};
  ArrayWriter writer = ArrayWriter::create(path("a.npy"), options);
  EXPECT_EQ(writer.rows(), 2u);
  EXPECT_EQ(writer.state(), "here");
  writer.abort();
  EXPECT_EQ(files(), std::vector<std::string>{});
}

using TokenWriterTest = WriterTest;

TEST_F(TokenWriterTest, EveryFormatIsReadBack) {
  for (const std::string format : {"nanogpt", "llm.c", "megatron", "datatrove", "npy"}) {
    for (const bool resumed : {false, true}) {
      const std::string name = format == "datatrove" ? "t.ds" : format == "npy" ? "t.npy" : "t.bin";
      TokenWriterOptions options;
      options.budget = 8_MiB;
      options.format = format;
      std::optional<TokenWriter> writer(TokenWriter::create(path(name), options));
      std::vector<std::int64_t> values(5'000);
      std::iota(values.begin(), values.end(), 0);
      const std::span<const std::int64_t> all(values);
      writer->append(all.first(100));
      writer->end_document();
      writer->append(all.subspan(100, 900));
      writer->end_document();
      if (resumed) {
        writer->checkpoint("two");
        writer->append(all.first(77));  // lost
        writer->end_document();
        writer.reset();
        options.resume = true;
        writer.emplace(TokenWriter::create(path(name), options));
        EXPECT_EQ(writer->state(), "two");
        EXPECT_EQ(writer->documents(), 2u);
        EXPECT_EQ(writer->tokens(), 1'000u);
      }
      writer->append(all.subspan(1'000));
      writer->close();
      const TokenLayout tokens = open({path(name)});
      expect_counting<std::uint16_t>(tokens, 5'000);
      EXPECT_EQ(tokens.layout.format, format == "nanogpt" ? "raw" : format);
      if (format == "megatron" || format == "datatrove") {
        EXPECT_EQ(tokens.documents, 3u);
      }
      for (const std::string& file : files()) std::filesystem::remove(path(file));
    }
  }
}

TEST_F(TokenWriterTest, TheIndexOfMegatronIsByteForByteRight) {
  TokenWriterOptions options;
  options.budget = 8_MiB;
  options.format = "megatron";
  options.dtype = kI32;
  TokenWriter writer = TokenWriter::create(path("corpus"), options);
  for (const std::int64_t length : {3, 1, 70'000}) {
    writer.append(std::vector<std::int64_t>(static_cast<std::size_t>(length), 9));
    writer.end_document();
  }
  writer.end_document();  // empty, so not a document
  writer.close();
  EXPECT_EQ(contents(path("corpus.idx")), MegatronIndex::of({3, 1, 70'000}, 4, 4).bytes());
  EXPECT_EQ(files(), (std::vector<std::string>{"corpus.bin", "corpus.idx"}));
}

TEST_F(TokenWriterTest, PutsTheSeparatorWhereTheFormatHasIt) {
  const auto written = [&](const std::string& format) {
    TokenWriterOptions options;
    options.budget = 8_MiB;
    options.format = format;
    options.eot = 50256;
    TokenWriter writer = TokenWriter::create(path("t"), options);
    for (const std::int64_t token : {1, 2}) {
      writer.append(std::vector{token});
      writer.end_document();
    }
    writer.close();
    return contents(path("t"));
  };
  EXPECT_EQ(written("nanogpt"), le_all<std::uint16_t>(std::vector{1, 50256, 2, 50256}));
  EXPECT_EQ(written("llm.c").substr(1024), le_all<std::uint16_t>(std::vector{50256, 1, 50256, 2}));
}

TEST_F(TokenWriterTest, RefusesTokensThatDoNotFit) {
  TokenWriterOptions options;
  options.budget = 8_MiB;
  TokenWriter writer = TokenWriter::create(path("t.bin"), options);
  writer.append(std::vector<std::int64_t>{65'535});
  EXPECT_THROW(writer.append(std::vector<std::int64_t>{1, 65'536}), Error);
  EXPECT_THROW(writer.append(std::vector<std::int64_t>{-1}), Error);
  writer.close();
  EXPECT_EQ(contents(path("t.bin")), "\xff\xff");
  options.format = "llm.c";
  options.dtype = kI32;
  EXPECT_THROW(TokenWriter::create(path("t.bin"), options), Error);
  options.format = "parquet";
  EXPECT_THROW(TokenWriter::create(path("t.bin"), options), Error);
}

using MemoryWriterTest = WriterTest;

// According to the kernel, no page of the file stays in the page cache.
TEST_F(MemoryWriterTest, NothingIsLeftInThePageCache) {
  struct statfs disk {};
  if (::statfs(path("").c_str(), &disk) == 0 && disk.f_type == TMPFS_MAGIC) {
    GTEST_SKIP() << "TMPDIR is on tmpfs, which is the page cache";
  }
  for (const bool direct : {true, false}) {
    FileWriter writer(path("f"), {.budget = 2_MiB, .allow_direct = direct});
    const Fd fd = open_readable(path("f.partial"));
    const std::string data = noise(1'000'000);
    sys::CacheStat most{};
    for (int i = 0; i < 32; ++i) {
      writer.append(bytes_of(data));
      sys::CacheStat now{};
      if (sys::cachestat(fd.get(), 0, 0, &now) != 0) GTEST_SKIP() << "the kernel has no cachestat";
      most.cached = std::max(most.cached, now.cached);
      most.dirty = std::max(most.dirty, now.dirty + now.writeback);
    }
    writer.complete();
    EXPECT_LE(most.cached * sys::page_size(), 2_MiB);
    EXPECT_LE(most.dirty * sys::page_size(), 2_MiB);
  }
}

}  // namespace
}  // namespace evenkeel
