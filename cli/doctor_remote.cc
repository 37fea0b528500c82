// What a server allows: `evenkeel doctor URL`.
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <memory>

#include "base/visible.h"
#include "cli/doctor_checks.h"
#include "cli/interrupt.h"
#include "evenkeel/bytes.h"
#include "remote/object.h"
#include "remote/opening.h"

namespace evenkeel::cli {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point began) {
  return std::chrono::duration<double>(Clock::now() - began).count();
}

// Bytes per second with requests of `size` bytes, `together` in flight, spread over the object.
double bandwidth(const RemoteObject& object, std::uint64_t size, unsigned together) {
  constexpr double kSeconds = 0.5;
  constexpr std::uint64_t kMostBytes = 256 << 20;
  TransferTotals totals;
  Transfers transfers(object.store->settings(), together, totals);
  std::vector<std::vector<std::byte>> rooms(together, std::vector<std::byte>(size));
  std::vector<std::unique_ptr<RangeTransfer>> reads(together);
  std::uint64_t next = 0, bytes = 0;
  const std::uint64_t places = std::max<std::uint64_t>(object.size / size, 1);
  const auto start = [&](std::size_t i) {
    const std::uint64_t offset = next++ * 7919 % places * size;
    reads[i] = std::make_unique<RangeTransfer>(object, offset, std::min(size, object.size - offset),
                                               rooms[i].data());
    transfers.start(*reads[i]);
  };
  const auto began = Clock::now();
  for (std::size_t i = 0; i < together; ++i) start(i);
  std::vector<Transfer*> done;
  try {
    while (transfers.active() > 0) {
      check_interrupt();
      transfers.wait(100, done);
      const bool enough = seconds_since(began) > kSeconds || bytes > kMostBytes;
      for (Transfer* transfer : done) {
        bytes += std::min(size, object.size);
        const auto which =
            std::ranges::find(reads, transfer, [](const auto& read) { return read.get(); });
        if (!enough) start(static_cast<std::size_t>(which - reads.begin()));
      }
      done.clear();
    }
  } catch (...) {
    transfers.cancel_all();
    throw;
  }
  return static_cast<double>(bytes) / seconds_since(began);
}

std::string rate(double bytes) { return format_size(static_cast<std::uint64_t>(bytes)) + "/s"; }

Check pinning(const RemoteObject& object) {
  if (!object.etag.empty()) {
    return {"versions", Health::kOk, "the server sends ETags",
            "an object that changes while it is read is an error", ""};
  }
  const bool dated = !object.last_modified.empty();
  return {"versions", Health::kLimited,
          dated ? "no ETag, but Last-Modified" : "neither ETag nor Last-Modified",
          dated ? "a change within a second may not be noticed"
                : "only a change of its length is noticed",
          "use a server that sends ETags"};
}

}  // namespace

std::vector<Check> check_remote(const std::string& url) {
  std::vector<Check> checks;
  bool available = false;
  const std::string library = describe_http(available);
  checks.push_back({"http", available ? Health::kOk : Health::kMissing, library,
                    available ? "URLs can be read" : "URLs are refused",
                    available ? "" : "install libcurl (Debian: apt-get install libcurl4)"});
  if (!available) return checks;
  const RemoteOpening opening;
  const std::shared_ptr<const RemoteObject> object = open_object(url);
  checks.push_back({"object", Health::kOk, with_commas(object->size) + " bytes",
                    "it exists, and ranges of it can be read", ""});
  const bool bucket = object->address.is_bucket();
  checks.push_back({"credentials",
                    !bucket || object->store->signs() ? Health::kOk : Health::kLimited,
                    object->store->describe(),
                    bucket && !object->store->signs() ? "only public objects can be read"
                                                      : "requests are made with these",
                    ""});
  checks.push_back(pinning(*object));
  if (object->size == 0) return checks;

  // The first request also makes the connection.
  TransferTotals totals;
  Transfers transfers(object->store->settings(), 1, totals);
  double least = 1e9;
  for (int i = 0; i < 6; ++i) {
    std::byte byte;
    RangeTransfer one(*object, object->size / 6 * static_cast<std::uint64_t>(i), 1, &byte);
    const auto began = Clock::now();
    transfers.run(one);
    least = std::min(least, seconds_since(began));
  }
  checks.push_back({"latency", Health::kOk, fmt::format("{:.1f} ms for one byte", least * 1e3),
                    "many requests are in flight at once, so they share this delay", ""});
  const unsigned together = object->store->settings().connections;
  std::string found;
  double best = 0;
  for (const std::uint64_t size :
       {std::uint64_t{4} << 10, std::uint64_t{64} << 10, std::uint64_t{1} << 20}) {
    const double speed = bandwidth(*object, size, std::min(together, 32U));
    best = std::max(best, speed);
    found += fmt::format("{}{} with requests of {}", found.empty() ? "" : ", ", rate(speed),
                         format_size(size));
  }
  checks.push_back({"bandwidth", Health::kOk, found,
                    fmt::format("an epoch over 1 TiB in order \"blocks\" takes about {:.1f} hours",
                                static_cast<double>(std::uint64_t{1} << 40) / best / 3600),
                    "read rows in order \"blocks\" or sequentially: small requests cost the most"});
  return checks;
}

}  // namespace evenkeel::cli
