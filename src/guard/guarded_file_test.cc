// labels: threads
#include "guard/guarded_file.h"

#include <gtest/gtest.h>

#include <functional>

#include "evenkeel/bytes.h"
#include "evenkeel/error.h"
#include "guard/own_mapping.h"
#include "guard/test_mapping.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kBytes = 16_MiB;
const GuardOptions kOptions{.budget = 8_MiB};

// Releases every part without checking whether the mapping is still there.
void release_blindly(GuardedFile& guarded) {
  for (std::size_t part = 0; part < guarded.cache_map().size(); ++part) {
    guarded.start_release(part);
    guarded.finish_release(part, 1);
  }
  guarded.release_all();
}

// The kernel may evict a page at any time, also one that was just read.
void expect_cached(const GuardedFile& guarded, std::uint64_t bytes) {
  EXPECT_GT(guarded.cache_map().cached(), bytes - 1_MiB);
  EXPECT_LE(guarded.cache_map().cached(), bytes);
}

class GuardedFileTest : public testing::Test {
 protected:
  std::unique_ptr<OwnMapping> own_mapping(const GuardMapping& mapping,
                                          const GuardOptions& options = kOptions) {
    return std::make_unique<OwnMapping>(mapping, options, maps_, pages_);
  }
  GuardedFile watch(const GuardMapping& mapping) {
    return GuardedFile(Fd(::dup(mapping.fd)), kOptions, own_mapping(mapping));
  }
  const NumberFile file_{kBytes};
  const Maps maps_;
  PageMap pages_;
};

class GuardedFileEitherWay : public GuardedFileTest, public testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(Promised, GuardedFileEitherWay, testing::Bool());

// Without the promise, only calls that cannot lose data are used, so whatever is at the address by
// now keeps its contents. With the promise, each release checks that it was kept.
TEST_P(GuardedFileEitherWay, AnonymousMemoryInItsPlaceSurvivesARelease) {
  TestMapping map(file_);
  GuardedFile guarded = watch(map.guarded(GetParam()));
  void* const address = map.words();
  ASSERT_EQ(::mmap(address, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED,
                   -1, 0),
            address);
  for (std::uint64_t word = 0; word < kBytes / 8; ++word) map[word] = ~word;
  release_blindly(guarded);
  std::uint64_t wrong = 0;
  for (std::uint64_t word = 0; word < kBytes / 8; ++word) wrong += map[word] != ~word;
  EXPECT_EQ(wrong, 0u);
}

TEST_P(GuardedFileEitherWay, ChangedPrivatePagesInItsPlaceSurviveARelease) {
  TestMapping map(file_);
  GuardedFile guarded = watch(map.guarded(GetParam()));
  ASSERT_EQ(
      ::mmap(map.words(), kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file_.fd(), 0),
      map.words());
  for (std::uint64_t word = 0; word < kBytes / 8; word += 1000) map[word] = ~word;
  release_blindly(guarded);
  std::uint64_t wrong = 0;
  for (std::uint64_t word = 0; word < kBytes / 8; ++word) {
    wrong += map[word] != (word % 1000 == 0 ? ~word : word);
  }
  EXPECT_EQ(wrong, 0u);
}

// Even with the promise, MADV_DONTNEED would discard the changes of a private mapping.
TEST_F(GuardedFileTest, ChangesOfAPrivateMappingSurviveWithAndWithoutThePromise) {
  for (const bool promised : {false, true}) {
    const TestMapping map(file_, PROT_READ | PROT_WRITE, MAP_PRIVATE);
    GuardedFile guarded = watch(map.guarded(promised));
    for (std::uint64_t word = 0; word < kBytes / 8; word += 1000) map[word] = ~word;
    release_blindly(guarded);
    std::uint64_t wrong = 0;
    for (std::uint64_t word = 0; word < kBytes / 8; ++word) {
      wrong += map[word] != (word % 1000 == 0 ? ~word : word);
    }
    EXPECT_EQ(wrong, 0u) << promised;
  }
}

TEST_F(GuardedFileTest, AReadOnlyPrivateMappingThatBecomesWritableKeepsItsChanges) {
  const TestMapping map(file_, PROT_READ, MAP_PRIVATE);
  GuardedFile guarded = watch(map.guarded(true));
  ASSERT_EQ(::mprotect(map.words(), kBytes, PROT_READ | PROT_WRITE), 0);
  map[5] = 77;
  release_blindly(guarded);
  EXPECT_EQ(map[5], 77u);
}

TEST_F(GuardedFileTest, AnotherMappingInItsPlaceIsNoticed) {
  TestMapping map(file_);
  const auto mapping = own_mapping(map.guarded(true));
  EXPECT_TRUE(mapping->still_there());
  const NumberFile other(kBytes);
  const auto put = [&](int flags, int fd, off_t offset) {
    return ::mmap(map.words(), 4096, PROT_READ, flags | MAP_FIXED, fd, offset) == map.words();
  };
  ASSERT_TRUE(put(MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  EXPECT_FALSE(mapping->still_there());
  ASSERT_TRUE(put(MAP_SHARED, file_.fd(), 4096));
  EXPECT_FALSE(mapping->still_there());
  ASSERT_TRUE(put(MAP_SHARED, other.fd(), 0));
  EXPECT_FALSE(mapping->still_there());
  ASSERT_TRUE(put(MAP_PRIVATE, file_.fd(), 0));
  EXPECT_FALSE(mapping->still_there());
  ASSERT_TRUE(put(MAP_SHARED, file_.fd(), 0));
  EXPECT_TRUE(mapping->still_there());
  map.unmap();
  EXPECT_FALSE(mapping->still_there());
}

TEST_F(GuardedFileTest, AMappingThatTheKernelSplitIsStillThere) {
  const TestMapping map(file_, PROT_READ | PROT_WRITE);
  const auto mapping = own_mapping(map.guarded(true));
  ASSERT_EQ(::mprotect(map.words() + 1024, 8192, PROT_READ), 0);
  ASSERT_EQ(::madvise(map.words() + 65536, 65536, MADV_RANDOM), 0);
  EXPECT_TRUE(mapping->still_there());
}

TEST_F(GuardedFileTest, PartOfAMappingAtAnOffsetIsAccepted) {
  const TestMapping map(file_);
  GuardMapping part = map.guarded(true);
  part.address = map.words() + 1024;
  part.file_offset = 8192;
  part.length = 3_MiB - 100;
  const auto mapping = own_mapping(part);
  EXPECT_TRUE(mapping->still_there());
  EXPECT_EQ(mapping->length(), 3_MiB);
}

TEST_F(GuardedFileTest, ARangeThatIsNotAMappingOfTheFileIsRefused) {
  const TestMapping map(file_);
  const NumberFile other(4096);
  const auto refuses = [&](const std::function<void(GuardMapping&)>& change) {
    GuardMapping wrong = map.guarded(true);
    change(wrong);
    EXPECT_THROW(own_mapping(wrong), Error);
  };
  refuses([](GuardMapping& m) { m.address = nullptr; });
  refuses([](GuardMapping& m) { m.address = static_cast<char*>(m.address) + 1; });
  refuses([](GuardMapping& m) { m.length = 0; });
  refuses([](GuardMapping& m) { m.length = ~std::size_t{0}; });
  refuses([](GuardMapping& m) { m.length += 1_GiB; });
  refuses([](GuardMapping& m) { m.file_offset = 4096; });
  refuses([](GuardMapping& m) { m.file_offset = 1; });
  refuses([](GuardMapping& m) { m.fd = -1; });
  refuses([&](GuardMapping& m) { m.fd = other.fd(); });
  const Fd pipe(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
  refuses([&](GuardMapping& m) { m.fd = pipe.get(); });
  void* anonymous =
      ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  refuses([&](GuardMapping& m) {
    m.address = anonymous;
    m.length = 4096;
  });
  ::munmap(anonymous, 4096);
}

TEST_F(GuardedFileTest, PartsThatAreMappedOneAfterAnotherAreOneFile) {
  const TestMapping map(file_);
  GuardMapping end = map.guarded(true), begin = end;
  end.address = map.words() + 8_MiB / 8;
  end.file_offset = 8_MiB;
  end.length = 8_MiB;
  begin.length = 1_MiB;
  GuardedFile guarded = watch(end);
  EXPECT_EQ(guarded.length(), 8_MiB);
  EXPECT_EQ(wrong_in_scan(map, kBytes / 8), 0u);
  guarded.look(1);
  expect_cached(guarded, 8_MiB);
  guarded.add(own_mapping(begin));
  EXPECT_EQ(guarded.length(), kBytes);
  expect_cached(guarded, 8_MiB);  // unchanged until the next look
  guarded.look(2);
  expect_cached(guarded, kBytes);
  EXPECT_EQ(guarded.cache_map()[guarded.cache_map().size() - 1].since, 1u);
  EXPECT_EQ(guarded.cache_map()[0].since, 2u);
}

// Its pages are gone only after both mappings have let go of them.
TEST_F(GuardedFileTest, AFileThatIsMappedTwiceCountsOnce) {
  const TestMapping map(file_), other(file_);
  GuardedFile guarded = watch(map.guarded(true));
  guarded.add(own_mapping(other.guarded(true)));
  EXPECT_EQ(wrong_in_scan(map, kBytes / 8), 0u);
  EXPECT_EQ(wrong_in_scan(other, kBytes / 8), 0u);
  guarded.look(1);
  expect_cached(guarded, kBytes);
  release_blindly(guarded);
  EXPECT_EQ(guarded.cache_map().cached(), 0u);
}

TEST_F(GuardedFileTest, ADeletedFileIsNoticed) {
  const TestMapping map(file_);
  const GuardedFile guarded = watch(map.guarded(true));
  EXPECT_FALSE(guarded.deleted());
  ::unlink(file_.path().c_str());
  EXPECT_TRUE(guarded.deleted());
}

TEST_F(GuardedFileTest, KeepingTheCacheNeedsThePromiseAndASharedMapping) {
  const GuardOptions keep{.budget = 8_MiB, .keep_cache = true};
  const TestMapping shared(file_), priv(file_, PROT_READ, MAP_PRIVATE);
  EXPECT_NO_THROW(own_mapping(shared.guarded(true), keep));
  EXPECT_THROW(own_mapping(shared.guarded(false), keep), Error);
  EXPECT_THROW(own_mapping(priv.guarded(true), keep), Error);
}

}  // namespace
}  // namespace evenkeel
