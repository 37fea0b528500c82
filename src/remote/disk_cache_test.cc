// labels: threads
#include "remote/disk_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <thread>

#include "base/memory.h"
#include "evenkeel/error.h"
#include "format/test_files.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kCacheLimit = 16 << 20;
constexpr std::uint64_t kRoom = DiskCache::kHeader + DiskCache::kBlock;

class DiskCacheTest : public FileTest {
 protected:
  static std::string key(int object) {
    return DiskCache::key_of("s3://b/" + std::to_string(object), 1 << 30);
  }
  // Stores a block whose bytes identify it.
  static void put(DiskCache& cache, int object, std::uint64_t block, std::uint64_t length) {
    Pages room(kRoom, "test");
    std::memset(room.data() + DiskCache::kHeader, static_cast<int>(object * 7 + block) & 0xff,
                length);
    cache.store(key(object), block, room.data(), length);
  }
  // Whether the block is there with the bytes that were stored.
  static bool has(DiskCache& cache, int object, std::uint64_t block, std::uint64_t length) {
    Pages room(kRoom, "test");
    const std::uint64_t got = cache.read(key(object), block, room.data());
    if (got == 0) return false;
    EXPECT_EQ(got, length);
    const auto wanted = static_cast<std::byte>((object * 7 + block) & 0xff);
    EXPECT_EQ(std::count(room.data() + DiskCache::kHeader, room.data() + kRoom, wanted) >=
                  static_cast<std::ptrdiff_t>(length),
              true);
    return true;
  }
  static std::uint64_t bytes_in(const DiskCache& cache) {
    std::uint64_t bytes = 0;
    for (const CachedBlock& block : DiskCache::list(cache.folder())) bytes += block.bytes;
    return bytes;
  }
};

TEST_F(DiskCacheTest, GivesBackWhatWasStored) {
  DiskCache cache(path("cache"), kCacheLimit);
  EXPECT_FALSE(has(cache, 1, 0, 100));
  put(cache, 1, 0, DiskCache::kBlock);
  put(cache, 1, 1, 100);  // the end of the object
  EXPECT_TRUE(has(cache, 1, 0, DiskCache::kBlock));
  EXPECT_TRUE(has(cache, 1, 1, 100));
  EXPECT_FALSE(has(cache, 2, 0, DiskCache::kBlock));
  DiskCache another(path("cache"), kCacheLimit);
  EXPECT_TRUE(has(another, 1, 0, DiskCache::kBlock));
}

TEST_F(DiskCacheTest, NeverHoldsMoreThanItsLimit) {
  DiskCache cache(path("cache"), kCacheLimit), other(path("cache"), kCacheLimit);
  for (std::uint64_t block = 0; block < 200; ++block) {
    put(block % 2 ? cache : other, 1, block, DiskCache::kBlock);
    ASSERT_LE(bytes_in(cache), kCacheLimit);
  }
  EXPECT_TRUE(has(cache, 1, 199, DiskCache::kBlock));  // the newest stay
  EXPECT_FALSE(has(cache, 1, 0, DiskCache::kBlock));
  EXPECT_GT(bytes_in(cache), kCacheLimit / 2);
}

TEST_F(DiskCacheTest, DoesNotUseDamagedBlocks) {
  DiskCache cache(path("cache"), kCacheLimit);
  for (std::uint64_t place : {std::uint64_t{3}, std::uint64_t{20}, DiskCache::kHeader + 5}) {
    put(cache, 1, 0, 1000);
    const std::string file = DiskCache::list(cache.folder()).front().path;
    EXPECT_TRUE(DiskCache::verify(file));
    {
      std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
      bytes.seekp(static_cast<std::streamoff>(place));
      bytes.put('\x5a');
    }
    EXPECT_FALSE(DiskCache::verify(file));
    EXPECT_FALSE(has(cache, 1, 0, 1000));
    EXPECT_TRUE(DiskCache::list(cache.folder()).empty());
  }
}

TEST_F(DiskCacheTest, TakesNoBlockForAnother) {
  DiskCache cache(path("cache"), kCacheLimit);
  put(cache, 1, 0, 1000);
  const std::string file = DiskCache::list(cache.folder()).front().path;
  const std::string other = file.substr(0, file.rfind('-')) + "-1";
  ASSERT_EQ(std::rename(file.c_str(), other.c_str()), 0);
  EXPECT_FALSE(has(cache, 1, 1, 1000));
}

TEST_F(DiskCacheTest, ForgetsWhatACrashLeftUnfinished) {
  DiskCache cache(path("cache"), kCacheLimit);
  for (int i = 0; i < 50; ++i) {
    std::ofstream(cache.folder() + "/unfinished/dead-" + std::to_string(i)) << "half";
  }
  std::ofstream(cache.folder() + "/usage") << "";  // as if a crash had lost the count, too
  for (std::uint64_t block = 0; block < 80; ++block) put(cache, 1, block, DiskCache::kBlock);
  EXPECT_TRUE(has(cache, 1, 79, DiskCache::kBlock));
  EXPECT_TRUE(std::ranges::none_of(DiskCache::list(cache.folder()), &CachedBlock::unfinished));
}

TEST_F(DiskCacheTest, ServesSeveralThreads) {
  DiskCache cache(path("cache"), kCacheLimit);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 3; ++thread) {
    threads.emplace_back([&cache, thread] {
      for (std::uint64_t block = 0; block < 40; ++block) {
        put(cache, thread % 2, block, 4096);
        has(cache, (thread + 1) % 2, block, 4096);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(has(cache, 1, 39, 4096));
}

TEST_F(DiskCacheTest, IsCleared) {
  DiskCache cache(path("cache"), kCacheLimit);
  put(cache, 1, 0, 5000);
  EXPECT_EQ(DiskCache::clear(cache.folder()), DiskCache::kHeader + 8192);
  EXPECT_FALSE(has(cache, 1, 0, 5000));
  EXPECT_EQ(bytes_in(cache), 0u);
}

TEST(DiskCacheSpecs, AreAFolderAndASize) {
  const DiskCacheSpec spec = parse_disk_cache("/nvme/a:b:2GiB");
  EXPECT_EQ(spec.folder, "/nvme/a:b");
  EXPECT_EQ(spec.limit, std::uint64_t{2} << 30);
  for (const char* wrong : {"", "/nvme", "/nvme:", ":1GiB", "/nvme:1MiB", "/nvme:x"}) {
    EXPECT_THROW(parse_disk_cache(wrong), Error) << wrong;
  }
}

}  // namespace
}  // namespace evenkeel
