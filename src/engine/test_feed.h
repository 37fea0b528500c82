// For tests of engines: files with known bytes, and a feed that requests them and checks what
// arrives.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <barrier>
#include <cstring>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "tests/temp_folder.h"

namespace evenkeel {

// Files of random bytes on a disk, as one array.
struct TestFiles {
  // `sizes` are the sizes of the files; a single file is written through to the disk. `place` is a
  // folder, by default one that supports O_DIRECT.
  explicit TestFiles(const std::vector<std::size_t>& sizes,
                     const std::filesystem::path& place =
                         disk_folder().value_or(std::filesystem::temp_directory_path()))
      : folder(place) {
    folder.open_to_everyone();
    std::vector<std::string> paths;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      bytes.push_back(random_bytes(sizes[i], i + 1));
      const std::string name = "part" + std::to_string(i);
      paths.push_back(sizes.size() == 1 ? folder.write_through(name, bytes.back())
                                        : folder.write(name, bytes.back()));
    }
    layout = read_layout(paths, {.dtype = DType::of<std::uint8_t>()});
  }
  const std::string& path(std::size_t file) const { return layout.segments[file].path; }
  // Opens files by name from now on, as arrays of very many files do.
  void keep_no_descriptors() {
    for (Segment& segment : layout.segments) segment.kept.reset();
  }

  TempFolder folder;
  std::vector<std::string> bytes;
  Layout layout;
};

// Extents that cover all files, within these limits. The last extent of a file may reach beyond its
// end.
inline std::vector<Extent> everything(const TestFiles& files, const EngineLimits& limits,
                                      std::uint64_t length) {
  length = std::clamp(length / limits.alignment * limits.alignment, limits.alignment,
                      limits.max_request);
  std::vector<Extent> extents;
  for (std::uint32_t file = 0; file < files.bytes.size(); ++file) {
    const std::uint64_t size = files.bytes[file].size();
    const std::uint64_t end = (size + limits.alignment - 1) / limits.alignment * limits.alignment;
    for (std::uint64_t at = 0; at < end; at += length) {
      extents.push_back({file, at, std::min(length, end - at), extents.size(), nullptr});
    }
  }
  return extents;
}

class TestFeed final : public Feed {
 public:
  TestFeed(const TestFiles& files, std::vector<Extent> extents)
      : files_(files), extents_(std::move(extents)), arrivals_(extents_.size()) {}

  TestFeed& shuffle(unsigned seed) {
    std::shuffle(extents_.begin(), extents_.end(), std::mt19937(seed));
    return *this;
  }
  TestFeed& throw_in_next(std::size_t number) { return next_throws_ = number, *this; }
  TestFeed& throw_in_arrived(std::size_t number) { return arrived_throws_ = number, *this; }
  // Gives each extent its own memory to be read into.
  TestFeed& in_place(std::byte* room) {
    for (Extent& extent : extents_) {
      extent.into = room;
      room += extent.length;
    }
    return *this;
  }
  // Wants `length` bytes of each extent, after the first `skip` bytes, in the feed's own memory.
  TestFeed& with_targets(std::uint64_t skip, std::uint64_t length) {
    skip_ = skip;
    target_length_ = length;
    targets_ = std::make_unique<std::string>(length * extents_.size(), ' ');
    return *this;
  }

  bool next(Extent& extent) override {
    if (next_throws_ == given_) throw std::runtime_error("next");
    if (given_ == extents_.size()) return false;
    extent = extents_[given_++];
    return true;
  }
  void arrived(const Extent& extent, const std::byte* data) override {
    if (arrived_throws_ == arrived_) throw std::runtime_error("arrived");
    ++arrived_;
    ++arrivals_[extent.tag];
    const std::string& file = files_.bytes[extent.file];
    std::uint64_t offset = extent.offset, length = extent.length;
    if (data == nullptr) {
      ASSERT_NE(targets_, nullptr) << "the feed has no target";
      data = place_of(extent);
      offset += skip_;
      length = target_length_;
    }
    length = std::min(length, file.size() - offset);
    if (std::memcmp(data, file.data() + offset, length) != 0) ++wrong_;
  }
  std::optional<Target> target(const Extent& extent) const override {
    if (!targets_) return std::nullopt;
    return Target{extent.offset + skip_, target_length_, place_of(extent)};
  }

  std::size_t arrivals() const { return arrived_; }
  // Returns "each once", or what is wrong.
  std::string account() const {
    if (wrong_ > 0) return std::to_string(wrong_) + " with wrong bytes";
    const auto once = static_cast<std::size_t>(std::ranges::count(arrivals_, 1));
    if (once == arrivals_.size()) return "each once";
    return std::to_string(once) + " of " + std::to_string(arrivals_.size()) + " once";
  }

 private:
  std::byte* place_of(const Extent& extent) const {
    return reinterpret_cast<std::byte*>(targets_->data()) + extent.tag * target_length_;
  }

  const TestFiles& files_;
  std::vector<Extent> extents_;
  std::vector<int> arrivals_;
  std::size_t given_ = 0, arrived_ = 0, wrong_ = 0;
  std::optional<std::size_t> next_throws_, arrived_throws_;
  std::uint64_t skip_ = 0, target_length_ = 0;
  std::unique_ptr<std::string> targets_;
};

// Reads all files through the engine, in shuffled extents of `length`.
inline std::string run_all(Engine& engine, const TestFiles& files, std::uint64_t length = 1 << 20) {
  TestFeed feed(files, everything(files, engine.limits(), length));
  engine.run(feed.shuffle(1));
  return feed.account();
}

// A feed whose first `next` waits until the other feeds are in their first `next`, too.
class Rendezvous final : public Feed {
 public:
  Rendezvous(TestFeed& feed, std::barrier<>& all) : feed_(feed), all_(all) {}
  bool next(Extent& extent) override {
    if (!std::exchange(met_, true)) all_.arrive_and_wait();
    return feed_.next(extent);
  }
  void arrived(const Extent& extent, const std::byte* data) override {
    feed_.arrived(extent, data);
  }
  std::optional<Target> target(const Extent& extent) const override { return feed_.target(extent); }

 private:
  TestFeed& feed_;
  std::barrier<>& all_;
  bool met_ = false;
};

// The same on two threads, which must be in `run` at the same time. If one waited for the other,
// both would wait forever.
inline std::string run_all_twice_at_once(Engine& engine, const TestFiles& files,
                                         std::uint64_t length) {
  std::barrier<> both(2);
  std::string accounts[2];
  std::vector<std::thread> threads;
  for (std::string& account : accounts) {
    threads.emplace_back([&] {
      TestFeed feed(files, everything(files, engine.limits(), length));
      Rendezvous rendezvous(feed, both);
      engine.run(rendezvous);
      account = feed.account();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return accounts[0] + ", " + accounts[1];
}

}  // namespace evenkeel
