// Compares the hit rates of the cache with those of other policies and of the offline optimum, on
// access patterns for one cache size. Prints a table in Markdown. Patterns are drawn from fixed
// seeds, so that two runs print the same.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <list>
#include <memory>
#include <numeric>
#include <queue>
#include <random>
#include <string>
#include <unordered_map>
#include <vector>

#include "cache/block_cache.h"

namespace evenkeel {
namespace {

using Trace = std::vector<std::uint64_t>;

class Policy {
 public:
  virtual ~Policy() = default;
  virtual bool access(std::uint64_t key) = 0;  // true: a hit
};

class Lru final : public Policy {
 public:
  explicit Lru(std::size_t size) : size_(size) {}
  bool access(std::uint64_t key) override {
    const auto found = where_.find(key);
    if (found != where_.end()) {
      order_.splice(order_.begin(), order_, found->second);
      return true;
    }
    order_.push_front(key);
    where_[key] = order_.begin();
    if (order_.size() > size_) {
      where_.erase(order_.back());
      order_.pop_back();
    }
    return false;
  }

 private:
  const std::size_t size_;
  std::list<std::uint64_t> order_;
  std::unordered_map<std::uint64_t, std::list<std::uint64_t>::iterator> where_;
};

// Yang et al., SOSP 2023: a tenth is a queue for newcomers; a ghost queue remembers as many keys as
// the main queue holds.
class S3Fifo final : public Policy {
 public:
  explicit S3Fifo(std::size_t size) : small_size_(size / 10), main_size_(size - size / 10) {}
  bool access(std::uint64_t key) override {
    const auto found = held_.find(key);
    if (found != held_.end()) {
      if (found->second < 3) ++found->second;
      return true;
    }
    while (held_.size() >= small_size_ + main_size_) evict();
    held_[key] = 0;
    if (ghosts_.erase(key) > 0) {
      main_.push_back(key);
    } else {
      small_.push_back(key);
    }
    return false;
  }

 private:
  void evict() {
    if (small_.size() >= small_size_ || main_.empty()) {
      while (!small_.empty()) {
        const std::uint64_t key = small_.front();
        small_.pop_front();
        if (held_[key] > 1) {
          held_[key] = 0;
          main_.push_back(key);
          if (main_.size() > main_size_) return evict_main();
          continue;
        }
        held_.erase(key);
        ghosts_.insert({key, 0});
        ghost_order_.push_back(key);
        while (ghost_order_.size() > main_size_) {
          ghosts_.erase(ghost_order_.front());
          ghost_order_.pop_front();
        }
        return;
      }
    }
    evict_main();
  }
  void evict_main() {
    while (!main_.empty()) {
      const std::uint64_t key = main_.front();
      main_.pop_front();
      if (held_[key] > 0) {
        --held_[key];
        main_.push_back(key);
        continue;
      }
      held_.erase(key);
      return;
    }
  }
  const std::size_t small_size_, main_size_;
  std::list<std::uint64_t> small_, main_, ghost_order_;
  std::unordered_map<std::uint64_t, int> held_, ghosts_;
};

// Jiang, Chen and Zhang, USENIX ATC 2005: hot and cold pages and those in their test period in one
// ring, with three hands.
class ClockPro final : public Policy {
 public:
  explicit ClockPro(std::size_t size) : size_(size), most_cold_(size - size / 100) {}
  bool access(std::uint64_t key) override {
    const auto found = where_.find(key);
    if (found != where_.end() && found->second->kind != kTest) {
      found->second->used = true;
      return true;
    }
    if (found == where_.end()) {
      add({key, kCold, false});
      ++cold_;
      return false;
    }
    if (most_cold_ < size_ - size_ / 100)
      ++most_cold_;  // otherwise the hot hand moves far for each
    remove(found->second);
    --tests_;
    add({key, kHot, false});
    ++hot_;
    return false;
  }

 private:
  enum Kind { kHot, kCold, kTest };
  struct Page {
    std::uint64_t key;
    Kind kind;
    bool used;
  };
  using Place = std::list<Page>::iterator;

  Place next(Place at) { return ++at == ring_.end() ? ring_.begin() : at; }
  void add(const Page& page) {
    make_room();
    const Place placed = ring_.insert(ring_.empty() ? ring_.end() : hot_hand_, page);
    where_[page.key] = placed;
    if (ring_.size() == 1) hot_hand_ = cold_hand_ = test_hand_ = placed;
    if (cold_hand_ == hot_hand_) cold_hand_ = placed;
  }
  void remove(Place page) {
    for (Place* hand : {&hot_hand_, &cold_hand_, &test_hand_}) {
      if (*hand == page) *hand = next(page);
    }
    where_.erase(page->key);
    ring_.erase(page);
  }
  void make_room() {
    while (hot_ + cold_ >= size_) turn_cold();
  }
  void turn_cold() {
    if (cold_hand_->kind == kCold) {
      if (cold_hand_->used) {
        cold_hand_->kind = kHot;
        cold_hand_->used = false;
        --cold_;
        ++hot_;
      } else {
        cold_hand_->kind = kTest;
        --cold_;
        ++tests_;
        while (tests_ > size_) turn_test();
      }
    }
    cold_hand_ = next(cold_hand_);
    while (hot_ > size_ - most_cold_) turn_hot();
  }
  void turn_hot() {
    if (hot_hand_ == test_hand_) turn_test();
    if (hot_hand_->kind == kHot) {
      if (hot_hand_->used) {
        hot_hand_->used = false;
      } else {
        hot_hand_->kind = kCold;
        --hot_;
        ++cold_;
      }
    }
    hot_hand_ = next(hot_hand_);
  }
  void turn_test() {
    if (test_hand_ == cold_hand_) turn_cold();
    if (test_hand_->kind == kTest) {
      const Place gone = test_hand_;
      test_hand_ = next(test_hand_);
      remove(gone);
      --tests_;
      if (most_cold_ > 1) --most_cold_;
      return;
    }
    test_hand_ = next(test_hand_);
  }

  const std::size_t size_;
  std::size_t most_cold_, hot_ = 0, cold_ = 0, tests_ = 0;
  std::list<Page> ring_;
  Place hot_hand_, cold_hand_, test_hand_;
  std::unordered_map<std::uint64_t, Place> where_;
};

// Einziger, Friedman and Manes, 2017: a window of one percent, then a segmented LRU that admits
// keys that were used more often than their victims.
class WTinyLfu final : public Policy {
 public:
  explicit WTinyLfu(std::size_t size)
      : size_(size), window_size_(std::max<std::size_t>(size / 100, 1)) {
    sketch_.resize(size * 2);
  }
  bool access(std::uint64_t key) override {
    if (++accesses_ == size_ * 10) {
      accesses_ = 0;
      sketch_.halve();
    }
    sketch_.add(mix_bits(key));
    const auto found = where_.find(key);
    if (found != where_.end()) {
      touch(found->second);
      return true;
    }
    put(window_, key, 0);
    if (window_.size() <= window_size_) return false;
    const std::uint64_t candidate = window_.back();
    if (probation_.size() + protected_.size() < size_ - window_size_) {
      move(candidate, 1);
      return false;
    }
    std::list<std::uint64_t>& losers = probation_.empty() ? protected_ : probation_;
    const std::uint64_t victim = losers.back();
    if (sketch_.count(mix_bits(candidate)) > sketch_.count(mix_bits(victim))) {
      losers.pop_back();
      where_.erase(victim);
      move(candidate, 1);
    } else {
      window_.pop_back();
      where_.erase(candidate);
    }
    return false;
  }

 private:
  struct Place {
    std::list<std::uint64_t>::iterator at;
    int segment;
  };
  std::list<std::uint64_t>& segment(int number) {
    return number == 0 ? window_ : number == 1 ? probation_ : protected_;
  }
  void put(std::list<std::uint64_t>& list, std::uint64_t key, int number) {
    list.push_front(key);
    where_[key] = {list.begin(), number};
  }
  void move(std::uint64_t key, int to) {
    Place& place = where_[key];
    segment(to).splice(segment(to).begin(), segment(place.segment), place.at);
    place.segment = to;
  }
  void touch(const Place& place) {
    move(*place.at, place.segment == 0 ? 0 : 2);
    if (protected_.size() > (size_ - window_size_) * 8 / 10) move(protected_.back(), 1);
  }
  const std::size_t size_, window_size_;
  std::size_t accesses_ = 0;
  FrequencySketch sketch_;
  std::list<std::uint64_t> window_, probation_, protected_;
  std::unordered_map<std::uint64_t, Place> where_;
};

// The cache itself, with blocks of 64 bytes.
class Ours final : public Policy {
 public:
  explicit Ours(std::size_t size)
      : budget_(size * kCost * 2), cache_(BlockCache::make(budget_, 64, size * kCost)) {}
  bool access(std::uint64_t key) override {
    std::byte block[64] = {};
    if (cache_->get(key, 0, 64, block)) return true;
    cache_->put(key, block, 64);
    return false;
  }
  std::uint64_t blocks() const { return cache_->blocks(); }

 private:
  static constexpr std::uint64_t kCost = 64 + BlockCache::kBookkeepingOfBlock;
  const Budget budget_;
  const std::shared_ptr<BlockCache> cache_;
};

double hit_rate(Policy& policy, const Trace& trace) {
  std::size_t hits = 0;
  for (const std::uint64_t key : trace) hits += policy.access(key) ? 1 : 0;
  return static_cast<double>(hits) / static_cast<double>(trace.size());
}

// Evicts the key that is needed latest, or does not admit it.
double belady(std::size_t size, const Trace& trace) {
  std::vector<std::size_t> next(trace.size());
  std::unordered_map<std::uint64_t, std::size_t> last;
  for (std::size_t i = trace.size(); i-- > 0;) {
    const auto found = last.find(trace[i]);
    next[i] = found == last.end() ? trace.size() + i : found->second;
    last[trace[i]] = i;
  }
  std::priority_queue<std::pair<std::size_t, std::uint64_t>> farthest;
  std::unordered_map<std::uint64_t, std::size_t> held;  // its next use
  std::size_t hits = 0;
  for (std::size_t i = 0; i < trace.size(); ++i) {
    hits += held.count(trace[i]);
    held[trace[i]] = next[i];
    farthest.emplace(next[i], trace[i]);
    while (held.size() > size) {
      const auto [when, key] = farthest.top();
      farthest.pop();
      const auto found = held.find(key);
      if (found != held.end() && found->second == when) held.erase(found);
    }
  }
  return static_cast<double>(hits) / static_cast<double>(trace.size());
}

Trace zipf(double exponent, std::size_t keys, std::size_t length) {
  std::vector<double> sums(keys);
  double sum = 0;
  for (std::size_t i = 0; i < keys; ++i) {
    sums[i] = sum += std::pow(static_cast<double>(i + 1), -exponent);
  }
  std::mt19937_64 random(1);
  std::uniform_real_distribution<double> draw(0, sum);
  Trace trace(length);
  for (std::uint64_t& key : trace) {
    key = static_cast<std::uint64_t>(std::lower_bound(sums.begin(), sums.end(), draw(random)) -
                                     sums.begin());
  }
  return trace;
}

// 90 % of the accesses to 5 % of the keys.
Trace hot_set(std::size_t keys, std::size_t length, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  Trace trace(length);
  for (std::uint64_t& key : trace) {
    key = random() % 10 < 9 ? random() % (keys / 20) : random() % keys;
  }
  return trace;
}

Trace scan_in_hot_set(std::size_t keys, std::size_t length) {
  Trace trace = hot_set(keys, length / 2, 2);
  for (std::uint64_t key = 0; key < keys; ++key) trace.push_back(1'000'000'000 + key);
  for (const std::uint64_t key : hot_set(keys, length / 2, 3)) trace.push_back(key);
  return trace;
}

Trace loop(std::size_t keys, std::size_t length) {
  Trace trace(length);
  for (std::size_t i = 0; i < length; ++i) trace[i] = i % keys;
  return trace;
}

Trace uniform(std::size_t keys, std::size_t length) {
  std::mt19937_64 random(4);
  Trace trace(length);
  for (std::uint64_t& key : trace) key = random() % keys;
  return trace;
}

// Epochs of training: each key once per epoch, in another order each time.
Trace shuffled_epochs(std::size_t keys, std::size_t length) {
  std::mt19937_64 random(6);
  std::vector<std::uint64_t> epoch(keys);
  std::iota(epoch.begin(), epoch.end(), 0);
  Trace trace;
  while (trace.size() < length) {
    std::shuffle(epoch.begin(), epoch.end(), random);
    trace.insert(trace.end(), epoch.begin(), epoch.end());
  }
  return trace;
}

Trace moving_hot_set(std::size_t keys, std::size_t length) {
  Trace trace;
  for (std::uint64_t part = 0; part < 4; ++part) {
    for (const std::uint64_t key : hot_set(keys, length / 4, 5 + part)) {
      trace.push_back((key + part * keys / 4) % keys);
    }
  }
  return trace;
}

int run() {
  constexpr std::size_t kSize = 16384, kLength = 1'000'000;
  const std::vector<std::pair<std::string, Trace>> patterns = {
      {"Zipf 0.99 over 10 x the cache", zipf(0.99, kSize * 10, kLength)},
      {"Zipf 1.2 over 10 x the cache", zipf(1.2, kSize * 10, kLength)},
      {"hot set: 90 % to 5 % of 4 x the cache", hot_set(kSize * 4, kLength, 1)},
      {"a scan of 4 x the cache in the middle of it", scan_in_hot_set(kSize * 4, kLength)},
      {"a hot set that moves three times", moving_hot_set(kSize * 4, kLength)},
      {"a loop over 1.1 x the cache", loop(kSize * 11 / 10, kLength)},
      {"uniform over 2 x the cache", uniform(kSize * 2, kLength)},
      {"shuffled epochs of 2 x the cache", shuffled_epochs(kSize * 2, kLength)},
      {"shuffled epochs of 4 x the cache", shuffled_epochs(kSize * 4, kLength)},
  };
  std::printf(
      "| %s accesses, a cache of %s blocks | Evenkeel | W-TinyLFU | S3-FIFO | CLOCK-Pro | "
      "LRU | optimum |\n|---|---|---|---|---|---|---|\n",
      with_commas(kLength).c_str(), with_commas(kSize).c_str());
  for (const auto& [name, trace] : patterns) {
    Ours ours(kSize);
    const double evenkeel = hit_rate(ours, trace);
    // The cache grows in slabs and may hold slightly fewer blocks than requested.
    const std::size_t size = ours.blocks() > kSize * 9 / 10 ? ours.blocks() : kSize;
    const auto of = [&](Policy&& policy) { return 100 * hit_rate(policy, trace); };
    std::printf("| %s | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f |\n", name.c_str(), 100 * evenkeel,
                of(WTinyLfu(size)), of(S3Fifo(size)), of(ClockPro(size)), of(Lru(size)),
                100 * belady(size, trace));
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace evenkeel

int main() { return evenkeel::run(); }
