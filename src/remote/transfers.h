// Requests that are repeated until they succeed: retries with growing, random delays, deadlines, a
// second request if the first is late, and a limit on requests per second.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "remote/http.h"
#include "remote/settings.h"

namespace evenkeel {

// Something to fetch, in one request or in several.
class Transfer {
 public:
  enum class Outcome : std::uint8_t {
    kDone,
    kAgain,  // repeat at once, with what was learnt, or for the bytes that are missing
    kRetry,  // it failed (see `reason`): repeat after a delay
  };
  virtual ~Transfer() = default;
  // Makes the next request. May be called again while the first request is in flight, for a second
  // one for the same bytes. Both then write to the same memory.
  virtual HttpRequest request() = 0;
  // What an answer means. Throws Error if a retry cannot help.
  virtual Outcome judge(HttpAnswer& answer, std::string& reason) = 0;
  virtual std::string path() const = 0;  // for errors
  virtual std::optional<std::uint64_t> offset() const { return std::nullopt; }
  virtual bool may_hedge() const { return false; }
  // Whether it uploads: errors then say "write", and bytes that were sent count as progress.
  virtual bool writes() const { return false; }
};

// Counters. After fork, each process counts its own transfers.
struct TransferTotals {
  std::atomic<std::uint64_t> requests = 0, finished = 0, bytes = 0;
  std::atomic<std::uint64_t> retries = 0, hedges = 0;
  // The shortest recent time to the first byte of an answer, and the bytes per second after that,
  // smoothed.
  std::atomic<double> latency_s = 0, bandwidth = 0;
};

// Runs transfers. Not thread-safe. Must not be used in a child of fork.
class Transfers {
 public:
  // `totals` must outlive this object.
  Transfers(const RemoteSettings& settings, unsigned connections, TransferTotals& totals);

  // `transfer` must stay alive until it is done or all are cancelled.
  void start(Transfer& transfer);
  // Works until a transfer is done or `milliseconds` have passed, and appends finished transfers to
  // `done`. Throws the Error of a transfer that failed. The others are then still in flight, and
  // the caller must cancel them.
  void wait(int milliseconds, std::vector<Transfer*>& done);
  void cancel_all();
  std::size_t active() const { return entries_.size(); }

  // Starts one transfer and waits until it is done.
  void run(Transfer& transfer);

 private:
  struct Entry {
    Transfer* transfer = nullptr;
    unsigned attempts = 0;                            // since the last progress
    unsigned rounds = 0;                              // answers that led to another request at once
    std::int64_t began = 0, moved = 0, start_at = 0;  // nanoseconds
    std::uint64_t first = 0, second = 0;              // ids of requests in flight; 0: none
    std::int64_t sent = 0, heard = 0;                 // of `first`: started, last byte
    std::uint64_t seen = 0;                           // bytes of `first` so far
    std::vector<std::string> history;                 // failures since the last progress
  };

  std::int64_t start_due(std::int64_t now);
  void send(Entry& entry, std::uint64_t& id, std::int64_t now);
  void handle(HttpAnswer& answer, std::vector<Transfer*>& done);
  void look_for_stalls(std::int64_t now, std::vector<Transfer*>& done);
  void put_off(Entry& entry, const std::string& reason, const std::string& retry_after);
  [[noreturn]] void give_up(const Entry& entry, const std::string& reason) const;
  void note_timing(const HttpAnswer& answer);
  std::int64_t hedge_after() const;
  Entry* find(std::uint64_t id);

  const RemoteSettings settings_;
  TransferTotals& totals_;
  HttpClient client_;
  std::deque<Entry> entries_;
  std::vector<HttpAnswer> answers_;
  std::uint64_t next_id_ = 1;
  std::int64_t next_slot_ = 0;    // when the limit on requests per second allows the next one
  std::int64_t next_look_ = 0;    // when to look for stalled requests
  std::vector<double> recent_s_;  // durations of the last requests; a ring buffer
  std::size_t recent_at_ = 0;
  double late_s_ = 0;  // a request that takes longer than this is late; 0: not known yet
  std::minstd_rand random_;
};

}  // namespace evenkeel
