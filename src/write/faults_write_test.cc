// Injects every fault at every call of a writer. Either the new file is complete and correct, or
// there is an error and the old file is still there.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/fault_hook.h"
#include "evenkeel/write.h"
#include "tests/fault_script.h"
#include "tests/temp_folder.h"
#include "write/file_writer.h"

namespace evenkeel {
namespace {

std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class FaultsOfWriters : public testing::Test {
 protected:
  // Writes 300,000 bytes with a checkpoint and a change.
  void write_all() const {
    ArrayWriterOptions options;
    options.budget = 1_MiB;
    options.dtype = DType::of<std::uint8_t>();
    ArrayWriter writer = ArrayWriter::create(folder_.path("a"), options);
    const std::string data(150'000, 'd');
    writer.append(std::as_bytes(std::span(data)));
    writer.checkpoint("x");
    writer.append(std::as_bytes(std::span(data)));
    writer.assign(70'000, std::as_bytes(std::span("e", 1)));
    writer.close();
  }
  static std::string wanted() {
    std::string data(300'000, 'd');
    data[70'000] = 'e';
    return data;
  }
  TempFolder folder_;
};

TEST_F(FaultsOfWriters, LeaveTheOldFileOrTheNewOne) {
  using sys::Call;
  int errors = 0;
  for (const Call call : {Call::kCreate, Call::kPwrite, Call::kFallocate, Call::kFtruncate,
                          Call::kFsync, Call::kRename, Call::kUnlink, Call::kThreadStart}) {
    for (const NamedFault& fault : faults_for(call)) {
      for (std::uint64_t ordinal = 0;; ++ordinal) {
        std::filesystem::remove_all(folder_.path("a.partial"));
        std::filesystem::remove_all(folder_.path("a.partial.state"));
        folder_.write("a", "old");
        bool failed = false, reached = false;
        {
          FaultScript script;
          script.spoil(call, ordinal, fault.fault);
          try {
            write_all();
          } catch (const Error& error) {
            failed = true;
            EXPECT_EQ(error.kind(), ErrorKind::kSystem) << error.what();
          }
          reached = script.reached();
        }
        const std::string what = std::string(kCallNames[static_cast<std::size_t>(call)]) + " " +
                                 std::string(fault.name) + " " + std::to_string(ordinal);
        const std::string now = text_of(folder_.path("a"));
        if (!failed) {
          ASSERT_TRUE(now == wanted()) << what;
        } else {
          ++errors;
          EXPECT_FALSE(fault.harmless) << what;
          // After the rename, only the folder's own sync can fail.
          ASSERT_TRUE(now == "old" || (call == Call::kFsync && now == wanted())) << what;
        }
        if (!reached) break;
      }
    }
  }
  EXPECT_GT(errors, 10);
}

// The kernel reports a failed write only once, and sync_file_range may be the call that gets it.
TEST_F(FaultsOfWriters, AnErrorOfWritingBackIsNotLost) {
  for (const int code : {EIO, ENOSYS}) {
    FaultScript script;
    script.spoil(sys::Call::kSyncRange, 0, {.error = code});
    const auto write_cached = [&] {
      FileWriter writer(folder_.path("b"), {.budget = 1_MiB, .allow_direct = false});
      const std::string data(150'000, 'd');
      writer.append(std::as_bytes(std::span(data)));
      writer.complete();
      writer.commit();
    };
    if (code == EIO) {
      EXPECT_THROW(write_cached(), Error);
    } else {
      EXPECT_NO_THROW(write_cached());
    }
    EXPECT_TRUE(script.reached());
    EXPECT_EQ(std::filesystem::exists(folder_.path("b")), code != EIO);
  }
}

// The index was renamed, the tokens were not.
TEST_F(FaultsOfWriters, TokensWithoutTheirNameAreResumed) {
  for (const std::string format : {"datatrove", "megatron"}) {
    const std::string name = folder_.path(format == "megatron" ? "t.bin" : "t.ds");
    folder_.write(format == "megatron" ? "t.bin" : "t.ds", "old");
    TokenWriterOptions options;
    options.budget = 8_MiB;
    options.format = format;
    const auto add = [](TokenWriter& writer, std::int64_t token) {
      writer.append(std::vector<std::int64_t>(1'000, token));
      writer.end_document();
    };
    {
      TokenWriter writer = TokenWriter::create(name, options);
      add(writer, 1);
      add(writer, 2);
      writer.checkpoint("two");
      add(writer, 3);
      FaultScript script;
      script.spoil(sys::Call::kRename, 1, {.error = EIO});
      EXPECT_THROW(writer.close(), Error);
      EXPECT_TRUE(script.reached());
    }
    EXPECT_FALSE(std::filesystem::exists(name));  // not the old one beside the new index
    options.resume = true;
    TokenWriter writer = TokenWriter::create(name, options);
    EXPECT_EQ(writer.state(), "two");
    EXPECT_EQ(writer.documents(), 2u);
    add(writer, 3);
    add(writer, 4);
    writer.close();
    EXPECT_EQ(std::filesystem::file_size(name), 8'000u);
    if (format == "datatrove") {
      const std::string index = text_of(name + ".index");
      std::array<std::uint64_t, 4> ends{};
      ASSERT_EQ(index.size(), sizeof ends);
      std::memcpy(ends.data(), index.data(), sizeof ends);
      EXPECT_EQ(ends, (std::array<std::uint64_t, 4>{1'000, 2'000, 3'000, 4'000}));
    }
  }
}

}  // namespace
}  // namespace evenkeel
