// Requests that are made until they succeed: retries with growing, random delays, deadlines, a
// second request when the first is late, and a limit on requests a second.
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
    kAgain,  // at once: something was learnt, or the server sent a part
    kRetry,  // after a while: it failed; see `reason`
  };
  virtual ~Transfer() = default;
  // The next request. A second one for the same bytes may be asked for while the first is under
  // way; both then go to the same place.
  virtual HttpRequest request() = 0;
  // What an answer means. Throws Error where another try cannot help.
  virtual Outcome judge(HttpAnswer& answer, std::string& reason) = 0;
  virtual std::string path() const = 0;  // for errors
  virtual std::optional<std::uint64_t> offset() const { return std::nullopt; }
  virtual bool may_hedge() const { return false; }
  virtual bool writes() const {
    return false;
  }  // for errors; and bytes that were sent are progress
};

// Counters since they were made, of all processes that share them by fork: each counts its own.
struct TransferTotals {
  std::atomic<std::uint64_t> requests = 0, finished = 0, bytes = 0;
  std::atomic<std::uint64_t> retries = 0, hedges = 0;
  // Of a request: the least time to the first byte of late, and bytes a second after it, smoothed.
  std::atomic<double> latency_s = 0, bandwidth = 0;
};

// One thread at a time; not to be used in a child of fork.
class Transfers {
 public:
  // `totals` must outlive it.
  Transfers(const RemoteSettings& settings, unsigned connections, TransferTotals& totals);

  // `transfer` must stay there until it is done, or all are cancelled.
  void start(Transfer& transfer);
  // Works until something is done, or `milliseconds` have passed; appends what is done. Throws the
  // Error of a transfer that failed: the others are still under way, and the caller cancels them.
  void wait(int milliseconds, std::vector<Transfer*>& done);
  void cancel_all();
  std::size_t active() const { return entries_.size(); }

  // Makes this one alone, and returns when it is done.
  void run(Transfer& transfer);

 private:
  struct Entry {
    Transfer* transfer = nullptr;
    unsigned attempts = 0;  // since something came
    unsigned rounds = 0;    // answers that asked for another request at once
    std::int64_t began = 0, moved = 0, start_at = 0;  // nanoseconds
    std::uint64_t first = 0, second = 0;              // ids of requests under way; 0: none
    std::int64_t sent = 0, heard = 0;                 // of `first`: started, last byte
    std::uint64_t seen = 0;                           // bytes of `first` so far
    std::vector<std::string> history;                 // of failures since something came
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
  std::int64_t next_slot_ = 0;    // of the limit on requests a second
  std::int64_t next_look_ = 0;    // for requests that stall
  std::vector<double> recent_s_;  // how long the last requests took; a ring
  std::size_t recent_at_ = 0;
  double late_s_ = 0;  // a request that takes longer than this is late; 0: not known yet
  std::minstd_rand random_;
};

}  // namespace evenkeel
