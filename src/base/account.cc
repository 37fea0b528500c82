#include "base/account.h"

#include <pthread.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/checked.h"
#include "base/sys.h"

namespace evenkeel {

Reservation::Account::Registry& Reservation::Account::Registry::get() {
  static Registry* const registry = [] {
    ::pthread_atfork(&lock_all, &unlock_all, &start_child);
    return new Registry;  // never destroyed: budgets may outlive static objects
  }();
  return *registry;
}

void Reservation::Account::Registry::lock_all() NO_THREAD_SAFETY_ANALYSIS { get().mutex.lock(); }

void Reservation::Account::Registry::unlock_all() NO_THREAD_SAFETY_ANALYSIS {
  get().mutex.unlock();
}

void Reservation::Account::Registry::start_child() {
  get().changed_of_processes.push_back(new CondVar);
  for (Account* account : get().accounts) account->disinherit();
  unlock_all();
}

Reservation::Account::Account(std::uint64_t bytes, std::string origin_text, bool follows_pressure)
    : limit(bytes),
      origin(std::move(origin_text)),
      automatic(follows_pressure),
      began_with(bytes),
      number(Registry::get().next_number++),
      period_began_ns(sys::monotonic_ns()) {
  Registry& all = Registry::get();
  const MutexLock lock(all.mutex);
  all.accounts.insert(this);
}

Reservation::Account::~Account() {
  Registry& all = Registry::get();
  const MutexLock lock(all.mutex);
  all.accounts.erase(this);
}

void Reservation::Account::disinherit() {
  for (const auto& [address, holder] : holders) {
    if (holder->in_children || holder->inherited) continue;
    holder->inherited = true;
    in_use -= holder->bytes;
  }
  for (Cache& cache : caches) {
    if (cache.inherited) continue;
    cache.inherited = true;
    in_use -= cache.bytes;
  }
  read_ahead.clear();
  in_reads = cached = 0;
  reclaiming = 0;
  peak = most_this_period = most_last_period = in_use;
  waiting.clear();
}

Reservation::Holder* Reservation::Account::take(std::uint64_t bytes, std::string_view what,
                                                bool of_read) {
  if (bytes > beyond(limit, in_use)) return nullptr;
  auto made = std::make_unique<Holder>(Holder{bytes, std::string(what), of_read});
  Holder* const holder = made.get();
  holders.emplace(holder, std::move(made));
  in_use += bytes;
  if (of_read) in_reads += bytes;
  peak = std::max(peak, in_use);
  most_this_period = std::max(most_this_period, uncached());
  return holder;
}

void Reservation::Account::give_back(const Holder* holder) {
  Registry& all = Registry::get();
  const MutexLock lock(all.mutex);
  if (!holder->inherited) {
    in_use -= holder->bytes;
    if (holder->of_read) in_reads -= holder->bytes;
  }
  holders.erase(holder);
  if (!waiting.empty()) all.changed().notify_all();
}

void Reservation::Account::set_limit(std::uint64_t bytes) {
  limit = bytes;
  while (in_use > limit && cached > 0) reclaim(in_use - limit);
  if (!waiting.empty()) Registry::get().changed().notify_all();
}

Error Reservation::Account::refused_resize(std::uint64_t bytes, std::uint64_t spare) const {
  const std::uint64_t held = uncached() - in_reads;
  const std::uint64_t least = beyond(held, spare);
  std::string read_ahead_too;
  if (spare > 0) {
    read_ahead_too = ", of which " + with_commas(spare) + " for reading ahead could be given back";
  }
  return Error(ErrorKind::kBudget, "resize",
               with_commas(bytes) + " bytes are less than the " + with_commas(held) +
                   " bytes in use" + holders_in_words() + read_ahead_too +
                   "; the budget stays at " + with_commas(limit) + " bytes")
      .hint("set at least " + with_commas(divide_up(least, 1_MiB)) +
            " MiB, or close loaders, batches or arrays first");
}

// Uses with the same name are added up: a loader has dozens of buffers.
std::vector<BudgetUse> Reservation::Account::uses(bool with_caches) const {
  std::map<std::string, BudgetUse> by_name;
  const auto add = [&](const std::string& what, std::uint64_t bytes) {
    BudgetUse& use = by_name[what];
    use.what = what;
    use.bytes += bytes;
    ++use.count;
  };
  for (const auto& [address, holder] : holders) {
    if (!holder->inherited) add(holder->what, holder->bytes);
  }
  for (const Cache& cache : caches) {
    if (with_caches && !cache.inherited && cache.bytes > 0) add(cache.what, cache.bytes);
  }
  std::vector<BudgetUse> list;
  list.reserve(by_name.size());
  for (auto& [name, use] : by_name) list.push_back(std::move(use));
  return list;
}

std::string Reservation::Account::holders_in_words() const {
  std::string held;
  for (const BudgetUse& use : uses(false)) {
    held += (held.empty() ? " (" : ", ") + use.what + " " + with_commas(use.bytes);
    if (use.count > 1) held += " in " + with_commas(use.count);
  }
  return held.empty() ? held : held + ")";
}

Error Reservation::Account::refusal(std::uint64_t bytes, std::string_view what) const {
  const std::string held = holders_in_words();
  // Caches would be freed, so what they hold counts as left.
  const std::uint64_t most = most_uncached(), free = left();
  std::string in_caches;
  if (cached > 0) in_caches = ", of which " + with_commas(cached) + " hold cached blocks now";
  // Arrays and loaders whose buffers depend on the limit take at most half of any increase, so
  // twice the missing bytes are enough. Rounded up to whole MiB, so that the printed number works.
  const std::uint64_t missing = bytes - free;
  const auto twice = checked_mul(missing, 2);
  const auto raised = twice ? checked_add(most, *twice) : std::nullopt;
  const auto enough = raised ? checked_add(*raised, 1_MiB - 1) : std::nullopt;
  return Error(ErrorKind::kBudget, "budget",
               std::string(what) + " need " + with_commas(bytes) + " bytes; the budget is " +
                   with_commas(most) + " bytes, of which " + with_commas(uncached()) +
                   " are in use" + held + ": " + with_commas(free) + " are left" + in_caches)
      .hint(automatic ? "use a budget of a fixed size, or request less at a time"
            : enough  ? "raise the budget to " + with_commas(*enough / 1_MiB) +
                           " MiB, or request less at a time"
                     : "request less at a time");
}

}  // namespace evenkeel
