// For tests: a file of numbers, mappings of it, and the kernel's figures about both.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "evenkeel/guard.h"
#include "evenkeel/meter.h"
#include "guard/activity.h"
#include "meter/file_cache.h"
#include "meter/process.h"

namespace evenkeel {

// A file of 64-bit words: word i is i. It is on the disk and not in the page cache.
class NumberFile {
 public:
  // With `sparse`, the file is one hole instead of the numbers.
  explicit NumberFile(std::uint64_t bytes, bool sparse = false) : bytes_(bytes) {
    path_ = (std::filesystem::temp_directory_path() / "evenkeel-guard-XXXXXX").string();
    fd_ = Fd(::mkostemp(path_.data(), O_CLOEXEC));
    if (!fd_) throw std::runtime_error("mkostemp " + path_);
    std::vector<std::uint64_t> words(1 << 17);
    if (sparse && ::ftruncate(fd_.get(), static_cast<off_t>(bytes)) != 0) {
      throw std::runtime_error("ftruncate " + path_);
    }
    for (std::uint64_t at = 0; !sparse && at < bytes; at += words.size() * 8) {
      for (std::size_t i = 0; i < words.size(); ++i) words[i] = at / 8 + i;
      const auto length = std::min<std::uint64_t>(words.size() * 8, bytes - at);
      if (::write(fd_.get(), words.data(), length) != static_cast<ssize_t>(length)) {
        throw std::runtime_error("write " + path_);
      }
    }
    ::fsync(fd_.get());
    ::fchmod(fd_.get(), 0644);
    left_ = drop_file_cache(path_);
  }
  NumberFile(const NumberFile&) = delete;
  ~NumberFile() { ::unlink(path_.c_str()); }

  const std::string& path() const { return path_; }
  int fd() const { return fd_.get(); }
  std::uint64_t bytes() const { return bytes_; }
  std::uint64_t words() const { return bytes_ / 8; }
  // False on tmpfs, and if the kernel cannot count cached pages.
  bool can_be_dropped() const { return left_ && *left_ == 0; }
  std::uint64_t cached() const { return file_cache_of(fd_.get())->cached; }

 private:
  std::string path_;
  const std::uint64_t bytes_;
  Fd fd_;
  std::optional<std::uint64_t> left_;
};

class TestMapping {
 public:
  explicit TestMapping(const NumberFile& file, int protection = PROT_READ, int flags = MAP_SHARED)
      : file_(file) {
    void* at = ::mmap(nullptr, file.bytes(), protection, flags, file.fd(), 0);
    if (at == MAP_FAILED) throw std::runtime_error("mmap " + file.path());
    words_ = static_cast<std::uint64_t*>(at);
  }
  TestMapping(const TestMapping&) = delete;
  ~TestMapping() { unmap(); }
  void unmap() {
    if (words_) ::munmap(words_, file_.bytes());
    words_ = nullptr;
  }

  std::uint64_t* words() const { return words_; }
  std::uint64_t volatile& operator[](std::uint64_t word) const { return words_[word]; }
  GuardMapping guarded(bool promised) const {
    return {.address = words_,
            .length = file_.bytes(),
            .fd = file_.fd(),
            .removed_before_unmap = promised};
  }

 private:
  const NumberFile& file_;
  std::uint64_t* words_ = nullptr;
};

// Reads crops of 2 KiB at random places. Returns the number of wrong words.
inline std::uint64_t wrong_in_crops(const TestMapping& map, std::uint64_t words, int crops,
                                    std::uint64_t seed = 1) {
  std::mt19937_64 draw(seed);
  std::uint64_t wrong = 0;
  for (int i = 0; i < crops; ++i) {
    const std::uint64_t begin = draw() % (words - 256);
    for (std::uint64_t word = begin; word < begin + 256; ++word) wrong += map[word] != word;
  }
  return wrong;
}
inline std::uint64_t wrong_in_scan(const TestMapping& map, std::uint64_t words) {
  std::uint64_t wrong = 0;
  for (std::uint64_t word = 0; word < words; ++word) wrong += map[word] != word;
  return wrong;
}
// Calls `work` until `reached` is true. Returns false after a minute.
inline bool until(const std::function<bool()>& reached, const std::function<void()>& work) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
  while (!reached()) {
    if (std::chrono::steady_clock::now() > end) return false;
    work();
  }
  return true;
}

// Whether a program may go on. The guard's thread may have to wait for a processor, so the programs
// in these tests wait for the guard: the tests check that it brings memory down, not how soon.
using MayGoOn = std::function<bool()>;
constexpr std::uint64_t kAhead = 16 << 20;  // how far above the budget a program still goes on

inline MayGoOn within(const NumberFile& file, std::uint64_t budget) {
  return [&file, budget] { return file.cached() <= budget + kAhead; };
}
// For tests in which the user may not count cached pages, or in which they all stay: compares the
// resident pages of files.
inline MayGoOn resident_within(std::uint64_t budget) {
  return
      [limit = process_memory().file + budget + kAhead] { return process_memory().file <= limit; };
}

inline void wait_for_guard(const MayGoOn& may_go_on) {
  const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(1)); };
  pause();
  if (may_go_on && !until(may_go_on, pause)) {
    throw std::runtime_error("the guard did not bring memory down within a minute");
  }
}

// Scans in blocks of 1 MiB, at most one per millisecond.
inline std::uint64_t wrong_in_paced_scan(const TestMapping& map, std::uint64_t words,
                                         const MayGoOn& may_go_on = nullptr) {
  constexpr std::uint64_t kBlock = (1 << 20) / 8;
  std::uint64_t wrong = 0;
  for (std::uint64_t begin = 0; begin < words; begin += kBlock) {
    for (std::uint64_t word = begin; word < std::min(words, begin + kBlock); ++word) {
      wrong += map[word] != word;
    }
    wait_for_guard(may_go_on);
  }
  return wrong;
}

// Writes ~word everywhere, in blocks of 1 MiB.
inline void write_paced(const TestMapping& map, std::uint64_t words, bool shuffled,
                        const MayGoOn& may_go_on) {
  constexpr std::uint64_t kBlock = (1 << 20) / 8;
  std::vector<std::uint64_t> blocks(words / kBlock);
  std::iota(blocks.begin(), blocks.end(), std::uint64_t{0});
  if (shuffled) std::shuffle(blocks.begin(), blocks.end(), std::mt19937_64(3));
  for (const std::uint64_t block : blocks) {
    for (std::uint64_t i = 0; i < kBlock; ++i) map[block * kBlock + i] = ~(block * kBlock + i);
    wait_for_guard(may_go_on);
  }
}

// Reads crops, with a pause whenever 1 MiB was read from the disk.
inline std::uint64_t wrong_in_paced_crops(const TestMapping& map, std::uint64_t words, int crops,
                                          const MayGoOn& may_go_on) {
  OwnActivity activity;
  std::uint64_t before = activity.read().read_bytes, wrong = 0;
  for (int crop = 0; crop < crops; ++crop) {
    wrong += wrong_in_crops(map, words, 1, static_cast<std::uint64_t>(crop));
    const std::uint64_t now = activity.read().read_bytes;
    if (now - before < (1 << 20)) continue;
    wait_for_guard(may_go_on);
    before = now;
  }
  return wrong;
}

// Records peak memory during its lifetime, measured every millisecond.
class PeakMemory {
 public:
  explicit PeakMemory(std::vector<int> files)
      : files_(std::move(files)), base_(meter_.sample()->file), thread_([this] { watch(); }) {}
  ~PeakMemory() { stop(); }
  void stop() {
    done_ = true;
    if (thread_.joinable()) thread_.join();
  }
  std::uint64_t cached = 0;  // bytes of the files in the page cache
  std::uint64_t mapped = 0;  // growth of RssFile

 private:
  void watch() {
    while (!done_) {
      std::uint64_t sum = 0;
      for (const int fd : files_) sum += file_cache_of(fd)->cached;
      cached = std::max(cached, sum);
      mapped = std::max(mapped, std::max(meter_.sample()->file, base_) - base_);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  const std::vector<int> files_;
  const ProcessMeter meter_{0};
  const std::uint64_t base_;
  std::atomic<bool> done_ = false;
  std::thread thread_;
};

}  // namespace evenkeel
