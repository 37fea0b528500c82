// Compares a mapping with and without a Guard: same reads, same checksums. Prints JSON.
//
//   guard_bench FILE BUDGET [CROPS [REPEATS]]
//
// Scenarios: random crops of 2 KiB and a scan of a file that is not cached, with the given budget;
// the same of the cached file, with a budget that it fits. Plain and guarded runs alternate;
// medians are printed. A plain run that lasts long enough has the whole file in memory, which the
// guard prevents. So the number of crops is small, as if the data never fitted.
//
// With GUARD_BENCH_PAGEOUT in the environment, the guard is not told that mappings are removed
// before they are unmapped. It then does not use MADV_DONTNEED.
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"
#include "evenkeel/guard.h"
#include "evenkeel/meter.h"
#include "evenkeel/order.h"
#include "meter/file_cache.h"
#include "meter/process.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kCrop = 2048, kSeed = 7;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class Mapped {
 public:
  explicit Mapped(const std::string& path) : fd(open_readable(path)) {
    struct stat status;
    if (sys::fstat(fd.get(), &status) != 0) throw Error::system("stat", errno).in(path);
    size = static_cast<std::uint64_t>(status.st_size);
    data = sys::mmap(nullptr, size, PROT_READ, MAP_SHARED, fd.get(), 0);
    if (data == MAP_FAILED) throw Error::system("map", errno).in(path);
  }
  ~Mapped() { sys::munmap(data, size); }
  Mapped(const Mapped&) = delete;

  Fd fd;
  std::uint64_t size = 0;
  void* data = nullptr;
};

std::uint64_t crops(const Mapped& map, std::uint64_t count) {
  std::uint64_t sum = 0;
  std::vector<std::uint64_t> crop(kCrop / 8);
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t at = uniform_draw(kSeed, 0, i, map.size - kCrop);
    std::memcpy(crop.data(), static_cast<const char*>(map.data) + at, kCrop);
    for (const std::uint64_t word : crop) sum = sum * 31 + word;
  }
  return sum;
}

std::uint64_t scan(const Mapped& map) {
  std::uint64_t sum = 0;
  const auto* words = static_cast<const std::uint64_t*>(map.data);
  for (std::uint64_t i = 0; i < map.size / 8; ++i) sum += words[i];
  return sum;
}

// Peaks of the file's page cache and of the process's mapped file pages, sampled by a thread.
class Peak {
 public:
  explicit Peak(int fd) : thread_([this, fd] { watch(fd); }) {}
  ~Peak() { stop(); }
  void stop() {
    done_ = true;
    if (thread_.joinable()) thread_.join();
  }
  std::uint64_t cached = 0, mapped = 0;

 private:
  void watch(int fd) {
    const ProcessMeter meter(0);
    const std::uint64_t base = meter.sample()->file;
    while (!done_) {
      const double begin = now();
      if (const auto cache = file_cache_of(fd)) cached = std::max(cached, cache->cached);
      mapped = std::max(mapped, std::max(base, meter.sample()->file) - base);
      std::this_thread::sleep_for(std::chrono::duration<double>(
          std::max(0.001, 5 * (now() - begin))));  // a fifth of a core at most
    }
  }
  std::atomic<bool> done_ = false;
  std::thread thread_;
};

struct Run {
  double seconds = 0;
  std::uint64_t checksum = 0, cached = 0, mapped = 0;
  GuardReport guard;
};

Run run(const std::string& path, std::uint64_t budget, bool watch,
        const std::function<std::uint64_t(const Mapped&)>& work) {
  Run result;
  const Mapped map(path);
  std::optional<Guard> guard;
  if (budget != 0) {
    guard.emplace(GuardOptions{.budget = budget});
    guard->add({.address = map.data,
                .length = map.size,
                .fd = map.fd.get(),
                .removed_before_unmap = std::getenv("GUARD_BENCH_PAGEOUT") == nullptr});
  }
  std::optional<Peak> peak;
  if (watch) peak.emplace(map.fd.get());
  const double begin = now();
  result.checksum = work(map);
  result.seconds = now() - begin;
  if (peak) {
    peak->stop();
    result.cached = peak->cached;
    result.mapped = peak->mapped;
  }
  if (guard) {
    result.guard = guard->report();
    guard->remove(map.data);
  }
  return result;
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

struct Scenario {
  const char* name;
  std::uint64_t budget;
  bool cold;
  std::function<std::uint64_t(const Mapped&)> work;
};

void measure(const std::string& path, const Scenario& scenario, int repeats, const char* end) {
  std::vector<double> ratios, plain_s, guarded_s, cpu;
  Run worst;
  for (int i = 0; i < repeats; ++i) {
    Run plain, guarded;
    for (const bool guard : {i % 2 == 1, i % 2 == 0}) {
      if (scenario.cold) drop_file_cache(path);
      (guard ? guarded : plain) =
          run(path, guard ? scenario.budget : 0, scenario.cold, scenario.work);
    }
    if (plain.checksum != guarded.checksum) {
      throw Error(ErrorKind::kInvalid, scenario.name, "the guarded mapping reads other bytes");
    }
    ratios.push_back(plain.seconds / guarded.seconds);
    plain_s.push_back(plain.seconds);
    guarded_s.push_back(guarded.seconds);
    cpu.push_back(guarded.guard.cpu_seconds / guarded.seconds);
    if (i == 0 || guarded.cached > worst.cached) worst = guarded;
  }
  const auto mib = [](std::uint64_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
  std::printf(
      "  {\"scenario\": \"%s\", \"speed_ratio\": %.3f, \"lowest\": %.3f, \"highest\": %.3f,\n"
      "   \"plain_s\": %.4f, \"guarded_s\": %.4f, \"budget_mib\": %.0f, \"peak_cached_mib\": %.1f, "
      "\"peak_mapped_mib\": %.1f,\n"
      "   \"evictor_cpu_share\": %.4f, \"released_mib\": %.0f, \"to_random\": %llu, "
      "\"to_readahead\": %llu, \"looks\": %llu}%s\n",
      scenario.name, median(ratios), *std::ranges::min_element(ratios),
      *std::ranges::max_element(ratios), median(plain_s), median(guarded_s), mib(scenario.budget),
      mib(worst.cached), mib(worst.mapped), median(cpu), mib(worst.guard.bytes_released),
      static_cast<unsigned long long>(worst.guard.switches_to_random),
      static_cast<unsigned long long>(worst.guard.switches_to_readahead),
      static_cast<unsigned long long>(worst.guard.looks), end);
  std::fflush(stdout);
}

int bench(const std::string& path, std::uint64_t budget, std::uint64_t count, int repeats) {
  const std::uint64_t size = Mapped(path).size;
  std::printf("[\n");
  const auto some = [count](const Mapped& map) { return crops(map, count); };
  measure(path, {"random, cold", budget, true, some}, repeats, ",");
  measure(path, {"scan, cold", budget, true, scan}, repeats, ",");
  run(path, 0, false, scan);
  const auto many = [count](const Mapped& map) { return crops(map, 100 * count); };
  measure(path, {"random, cached, fits", 2 * size, false, many}, 2 * repeats + 1, ",");
  measure(path, {"scan, cached, fits", 2 * size, false, scan}, 2 * repeats + 1, "");
  std::printf("]\n");
  return 0;
}

}  // namespace
}  // namespace evenkeel

int main(int argc, char** argv) try {
  if (argc < 3) {
    std::fprintf(stderr, "usage: guard_bench FILE BUDGET [CROPS [REPEATS]]\n");
    return 2;
  }
  return evenkeel::bench(argv[1], evenkeel::parse_size(argv[2]),
                         argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 5000,
                         argc > 4 ? std::atoi(argv[4]) : 3);
} catch (const std::exception& error) {
  std::fprintf(stderr, "guard_bench: %s\n", error.what());
  return 1;
}
