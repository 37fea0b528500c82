#include "remote/transfers.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "base/sys.h"
#include "evenkeel/error.h"
#include "remote/response.h"

namespace evenkeel {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::size_t kRecent = 256;             // requests whose times are remembered
constexpr double kLongestDelay = 20;             // seconds between two attempts
constexpr double kLeastLate = 0.05;              // seconds; no request is late before
constexpr std::uint64_t kHedgesOfRequests = 50;  // at most one request in 50 is a second one
constexpr unsigned kMostRounds = 100;  // answers in a row that only lead to another request

std::int64_t in_ns(double seconds) { return static_cast<std::int64_t>(seconds * 1e9); }

}  // namespace

Transfers::Transfers(const RemoteSettings& settings, unsigned connections, TransferTotals& totals)
    : settings_(settings),
      totals_(totals),
      client_(connections),
      random_(static_cast<unsigned>(sys::monotonic_ns() ^ reinterpret_cast<std::uintptr_t>(this))) {
}

void Transfers::start(Transfer& transfer) {
  const std::int64_t now = sys::monotonic_ns();
  Entry& entry = entries_.emplace_back();
  entry.transfer = &transfer;
  entry.began = entry.moved = entry.start_at = now;
}

void Transfers::send(Entry& entry, std::uint64_t& id, std::int64_t now) {
  if (settings_.requests_per_second > 0) {
    next_slot_ = std::max(next_slot_, now) + in_ns(1 / settings_.requests_per_second);
  }
  id = next_id_++;
  client_.start(id, entry.transfer->request());
  totals_.requests.fetch_add(1, std::memory_order_relaxed);
}

// Starts all requests that are due. Returns the time when the next one is due.
std::int64_t Transfers::start_due(std::int64_t now) {
  std::int64_t next = INT64_MAX;
  const std::int64_t late = hedge_after();
  for (Entry& entry : entries_) {
    if (entry.first == 0) {
      const std::int64_t due = std::max(entry.start_at, next_slot_);
      if (due > now) {
        next = std::min(next, due);
        continue;
      }
      entry.sent = entry.heard = now;
      entry.seen = 0;
      send(entry, entry.first, now);
    } else if (late > 0 && entry.second == 0 && entry.transfer->may_hedge()) {
      if (now - entry.sent >= late) {
        const std::uint64_t hedges = totals_.hedges.load(std::memory_order_relaxed);
        if (hedges * kHedgesOfRequests > totals_.requests.load(std::memory_order_relaxed) ||
            next_slot_ > now) {
          continue;
        }
        send(entry, entry.second, now);
        totals_.hedges.fetch_add(1, std::memory_order_relaxed);
      } else {
        next = std::min(next, entry.sent + late);
      }
    }
  }
  return next;
}

std::int64_t Transfers::hedge_after() const {
  return settings_.hedge && late_s_ > 0 ? in_ns(late_s_) : 0;
}

Transfers::Entry* Transfers::find(std::uint64_t id) {
  const auto found = std::ranges::find_if(
      entries_, [&](const Entry& entry) { return entry.first == id || entry.second == id; });
  return found == entries_.end() ? nullptr : &*found;
}

void Transfers::note_timing(const HttpAnswer& answer) {
  const auto smooth = [](std::atomic<double>& value, double now, double weight) {
    const double old = value.load(std::memory_order_relaxed);
    value.store(old == 0 ? now : old + (now - old) * weight, std::memory_order_relaxed);
  };
  // A longer time includes waiting in a queue. So a shorter one replaces the value at once, and
  // longer ones change it slowly.
  const bool shortest = answer.first_byte_s < totals_.latency_s.load(std::memory_order_relaxed);
  smooth(totals_.latency_s, answer.first_byte_s, shortest ? 1 : 1.0 / 256);
  // Over the whole time. A short body arrives in one burst, whose speed is not what a connection
  // transfers beside the others; with it, gaps that nobody wants would fill the link.
  if (answer.written >= (64 << 10) && answer.total_s > 0) {
    smooth(totals_.bandwidth, static_cast<double>(answer.written) / answer.total_s, 1.0 / 16);
  }
  if (recent_s_.size() < kRecent) {
    recent_s_.push_back(answer.total_s);
  } else {
    recent_s_[recent_at_] = answer.total_s;
  }
  recent_at_ = (recent_at_ + 1) % kRecent;
  if (recent_s_.size() < 32 || recent_at_ % 32 != 0) return;
  std::vector<double> sorted = recent_s_;
  const auto slowest = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() * 98 / 100);
  std::ranges::nth_element(sorted, slowest);
  late_s_ = std::max(kLeastLate, 2 * *slowest);
}

void Transfers::give_up(const Entry& entry, const std::string& reason) const {
  const double seconds = static_cast<double>(sys::monotonic_ns() - entry.moved) / 1e9;
  char took[32];
  std::snprintf(took, sizeof took, "%.1f s", seconds);
  std::string words = "the server did not deliver: " + std::to_string(entry.attempts) +
                      (entry.attempts == 1 ? " attempt" : " attempts") + " in " + took +
                      ", the last: " + reason;
  std::string before;
  for (const std::string& one : entry.history) {
    if (one != reason && before.find(one) == before.npos)
      before += (before.empty() ? "" : "; ") + one;
  }
  if (!before.empty()) words += " (before: " + before + ")";
  const bool stalled = reason.starts_with("no byte");
  Error error =
      Error::system(entry.transfer->writes() ? "write" : "read", stalled ? ETIMEDOUT : EIO, words)
          .in(entry.transfer->path());
  // A new object: an Error that is assigned to itself would lose its text.
  if (const auto offset = entry.transfer->offset()) error = Error(std::move(error).at(*offset));
  throw std::move(error).hint(
      "the server is overloaded or unreachable; EVENKEEL_ATTEMPTS and EVENKEEL_DEADLINE set how "
      "long to retry");
}

void Transfers::put_off(Entry& entry, const std::string& reason, const std::string& retry_after) {
  const std::int64_t now = sys::monotonic_ns();
  ++entry.attempts;
  if (entry.attempts >= settings_.attempts || now - entry.moved >= in_ns(settings_.deadline_s)) {
    give_up(entry, reason);
  }
  if (entry.history.size() < 8) entry.history.push_back(reason);
  totals_.retries.fetch_add(1, std::memory_order_relaxed);
  // The delay doubles each time. Its random part keeps clients that failed together from retrying
  // together.
  const unsigned doublings = std::min(entry.attempts - 1, 20U);
  const double longest =
      std::min(settings_.retry_delay_s * static_cast<double>(1U << doublings), kLongestDelay);
  double delay = longest * std::uniform_real_distribution<double>(0.5, 1.0)(random_);
  if (const auto asked = parse_retry_after(retry_after))
    delay = std::max(delay, std::min(*asked, 60.0));
  entry.start_at = now + in_ns(delay);
  entry.first = entry.second = 0;
}

void Transfers::handle(HttpAnswer& answer, std::vector<Transfer*>& done) {
  Entry* const entry = find(answer.id);
  if (!entry) return;
  const bool was_second = entry->second == answer.id;
  const bool other_under_way = was_second ? entry->first != 0 : entry->second != 0;
  const bool failed =
      answer.status == 0 || !answer.failure.empty() || answer.status >= 500 || answer.status == 429;
  totals_.finished.fetch_add(1, std::memory_order_relaxed);
  totals_.bytes.fetch_add(answer.written, std::memory_order_relaxed);
  if (failed && other_under_way && !answer.hopeless) {  // the other one may still succeed
    if (was_second) {
      entry->second = 0;
    } else {
      entry->first = entry->second;
      entry->second = 0;
      entry->sent = entry->heard = sys::monotonic_ns();
      entry->seen = 0;
    }
    return;
  }
  if (other_under_way) {
    client_.cancel(was_second ? entry->first : entry->second);
    totals_.finished.fetch_add(1, std::memory_order_relaxed);
  }
  entry->first = entry->second = 0;
  if (!failed) note_timing(answer);
  std::string reason;
  const std::optional<std::uint64_t> before = entry->transfer->offset();
  const Transfer::Outcome outcome = entry->transfer->judge(answer, reason);
  if (entry->transfer->offset() != before) {  // the bytes that arrived are progress
    entry->attempts = 0;
    entry->history.clear();
    entry->moved = sys::monotonic_ns();
  }
  if (outcome == Transfer::Outcome::kDone) {
    done.push_back(entry->transfer);
    entries_.erase(std::ranges::find(entries_, entry->transfer, &Entry::transfer));
  } else if (outcome == Transfer::Outcome::kAgain && ++entry->rounds <= kMostRounds) {
    entry->start_at = sys::monotonic_ns();
  } else {
    put_off(*entry, reason.empty() ? "every answer leads to another request" : reason,
            answer.retry_after);
  }
}

void Transfers::look_for_stalls(std::int64_t now, std::vector<Transfer*>& done) {
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    if (entry.first == 0) continue;
    const std::uint64_t seen = client_.written(entry.first);
    if (seen > entry.seen) {
      entry.seen = seen;
      entry.heard = now;
      if (entry.transfer->writes()) entry.moved = now;
    }
    if (now - entry.heard < in_ns(settings_.stall_s)) continue;
    HttpAnswer answer = client_.cancel(entry.first);  // with the bytes that arrived
    char words[64];
    std::snprintf(words, sizeof words, "no byte for %g s", settings_.stall_s);
    answer.failure = words;
    handle(answer, done);
  }
}

void Transfers::wait(int milliseconds, std::vector<Transfer*>& done) {
  const std::int64_t until = sys::monotonic_ns() + milliseconds * (kSecond / 1000);
  const std::size_t before = done.size();
  while (!entries_.empty() && done.size() == before) {
    std::int64_t now = sys::monotonic_ns();
    const std::int64_t next = std::min({start_due(now), until, now + kSecond / 20});
    const auto pause = static_cast<int>(std::max<std::int64_t>(next - now, 0) / (kSecond / 1000));
    answers_.clear();
    client_.work(std::max(pause, 1), answers_);
    for (HttpAnswer& answer : answers_) handle(answer, done);
    now = sys::monotonic_ns();
    if (now >= next_look_) {
      look_for_stalls(now, done);
      next_look_ = now + std::min(kSecond / 20, in_ns(settings_.stall_s / 4));
    }
    if (now >= until) return;
  }
}

void Transfers::cancel_all() {
  for (const Entry& entry : entries_) {
    for (const std::uint64_t id : {entry.first, entry.second}) {
      if (id == 0) continue;
      totals_.bytes.fetch_add(client_.written(id), std::memory_order_relaxed);
      totals_.finished.fetch_add(1, std::memory_order_relaxed);
      client_.cancel(id);
    }
  }
  entries_.clear();
}

void Transfers::run(Transfer& transfer) {
  start(transfer);
  std::vector<Transfer*> done;
  try {
    while (done.empty()) wait(1000, done);
  } catch (...) {
    cancel_all();
    throw;
  }
}

}  // namespace evenkeel
