// Every fault at every call of a writer: the file is complete and right, or there is an error and
// the old file is still there.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/fault_hook.h"
#include "evenkeel/write.h"
#include "tests/fault_script.h"
#include "tests/temp_folder.h"

namespace evenkeel {
namespace {

std::string text_of(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

class FaultsOfWriters : public testing::Test {
 protected:
  // 300,000 bytes, a change, a checkpoint; Megatron's index, too.
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

}  // namespace
}  // namespace evenkeel
