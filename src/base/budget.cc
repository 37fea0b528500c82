#include "evenkeel/budget.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <list>
#include <map>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/automatic_budget.h"
#include "base/checked.h"
#include "base/mutex.h"
#include "base/reclaimable.h"
#include "base/sys.h"
#include "evenkeel/error.h"

namespace evenkeel {

// One use of a budget, for the arithmetic in messages.
struct Reservation::Holder {
  std::uint64_t bytes;
  std::string what;
  bool of_read = false;      // given back when a read is done
  bool in_children = false;  // counts in children of fork, too
  bool inherited = false;    // the parent's, and not counted in this process
};

// What one cache holds.
struct Reservation::Cache {
  std::string what;
  std::uint64_t bytes = 0;
  std::weak_ptr<Reclaimer> reclaimer = {};
  bool inherited = false;  // the parent's: not counted in this process, and not to be called
};

// Holders stay here when reservations move: one thread may name them while another moves its own.
// The mutex of all accounts guards its members.
struct Reservation::Account {
  struct Registry;

  explicit Account(std::uint64_t bytes, std::string origin_text, bool follows_pressure = false);
  ~Account();
  Account(const Account&) = delete;
  Account& operator=(const Account&) = delete;

  // Changed under the mutex, read without.
  std::atomic<std::uint64_t> limit;
  std::string origin;  // where the number comes from, for describe()
  const bool automatic;
  const std::uint64_t began_with;  // the first limit
  std::uint64_t in_use = 0, peak = 0;
  std::uint64_t in_reads = 0;  // the part of in_use that reads hold
  std::uint64_t cached = 0;    // the part of in_use that caches hold
  std::list<Holder> holders;
  std::list<Cache> caches;
  // Reservations for which caches give way at the moment: no cache grows meanwhile.
  int reclaiming = 0;
  // Reads that wait for memory, by number: the lowest is served first.
  std::set<std::uint64_t> waiting;
  std::uint64_t next_waiting = 0;

  // What others than caches hold, and the most of it in this period and the one before.
  std::uint64_t uncached() const { return in_use - cached; }
  std::uint64_t most_this_period = 0, most_last_period = 0;
  std::int64_t period_began_ns;
  std::uint64_t most_uncached_lately();

  static std::uint64_t beyond(std::uint64_t most, std::uint64_t used) {
    return most > used ? most - used : 0;
  }
  // What others than caches may hold. Pressure takes from caches: what work needs stays granted.
  std::uint64_t most_uncached() const {
    return automatic ? std::max<std::uint64_t>(limit, began_with) : limit.load();
  }
  // What may still be reserved, if caches give way.
  std::uint64_t left() const { return beyond(most_uncached(), uncached()); }

  // nullptr when it does not fit beside what is reserved, caches included.
  Holder* take(std::uint64_t bytes, std::string_view what, bool of_read) {
    if (bytes > beyond(limit, in_use)) return nullptr;
    holders.push_back({bytes, std::string(what), of_read});
    in_use += bytes;
    if (of_read) in_reads += bytes;
    peak = std::max(peak, in_use);
    most_this_period = std::max(most_this_period, uncached());
    return &holders.back();
  }
  // The same, with caches giving way. Lets go of the mutex while they do.
  Holder* take_from_caches(std::uint64_t bytes, std::string_view what, bool of_read);
  // Sets a limit that is not below what others than caches hold, and has caches give way to it.
  // Lets go of the mutex while they do.
  void set_limit(std::uint64_t bytes);
  // What holds the budget, in words: " (read buffers 4,096, results 100 in 2)".
  std::string holders_in_words() const;
  Error refused_resize(std::uint64_t bytes) const;
  // Has caches free `bytes`, the largest first. The caller holds the mutex, which is let go of
  // meanwhile: look again what fits.
  void reclaim(std::uint64_t bytes);
  bool grow(Cache& cache, std::uint64_t bytes);
  void shrink(Cache& cache, std::uint64_t bytes);
  std::uint64_t share_of(const Cache& cache) const;  // if all caches in use hold the same

  bool fits_beside_reads(std::uint64_t bytes) const {
    return bytes <= beyond(most_uncached(), uncached() - in_reads);
  }
  void give_back(const Holder* holder);
  // In a child of fork: what the parent holds does not count here.
  void disinherit() {
    for (Holder& holder : holders) {
      if (holder.in_children || holder.inherited) continue;
      holder.inherited = true;
      in_use -= holder.bytes;
    }
    for (Cache& cache : caches) {
      if (cache.inherited) continue;
      cache.inherited = true;
      in_use -= cache.bytes;
    }
    in_reads = cached = 0;
    reclaiming = 0;
    peak = most_this_period = most_last_period = in_use;
    waiting.clear();
  }
  std::vector<BudgetUse> uses() const;
  Error refusal(std::uint64_t bytes, std::string_view what) const;
};

// All accounts of the process. One mutex for them, held across fork: reserving is rare, and a child
// must find every account whole, whatever the parent's threads were doing.
struct Reservation::Account::Registry {
  static Registry& get() {
    static Registry* const registry = [] {
      ::pthread_atfork(&lock_all, &unlock_all, &start_child);
      return new Registry;  // never destroyed: budgets may outlive static objects
    }();
    return *registry;
  }

  Mutex mutex;
  // Signals that memory was given back. A child of fork has one of its own, the last: threads of
  // its parent may be waiting on the others, which therefore cannot be destroyed.
  std::vector<CondVar*> changed_of_processes{new CondVar};
  CondVar& changed() { return *changed_of_processes.back(); }
  std::set<Account*> accounts;

 private:
  static void lock_all() NO_THREAD_SAFETY_ANALYSIS { get().mutex.lock(); }
  static void unlock_all() NO_THREAD_SAFETY_ANALYSIS { get().mutex.unlock(); }
  static void start_child() {
    get().changed_of_processes.push_back(new CondVar);
    for (Account* account : get().accounts) account->disinherit();
    unlock_all();
  }
};

Reservation::Account::Account(std::uint64_t bytes, std::string origin_text, bool follows_pressure)
    : limit(bytes),
      origin(std::move(origin_text)),
      automatic(follows_pressure),
      began_with(bytes),
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

void Reservation::Account::give_back(const Holder* holder) {
  Registry& all = Registry::get();
  const MutexLock lock(all.mutex);
  if (!holder->inherited) {
    in_use -= holder->bytes;
    if (holder->of_read) in_reads -= holder->bytes;
  }
  holders.remove_if([&](const Holder& one) { return &one == holder; });
  if (!waiting.empty()) all.changed().notify_all();
}

// Buffers of a read come and go: a cache that grew into their place would be cut down each time.
std::uint64_t Reservation::Account::most_uncached_lately() {
  constexpr std::int64_t kPeriodNs = 2'000'000'000;
  const std::int64_t now = sys::monotonic_ns(), age = now - period_began_ns;
  if (age < 0 || age >= kPeriodNs) {
    most_last_period = age < 0 || age >= 2 * kPeriodNs ? uncached() : most_this_period;
    most_this_period = uncached();
    period_began_ns = now;
  }
  return std::max({most_this_period, most_last_period, uncached()});
}

Reservation::Holder* Reservation::Account::take_from_caches(std::uint64_t bytes,
                                                            std::string_view what, bool of_read) {
  for (;;) {
    if (Holder* holder = take(bytes, what, of_read)) return holder;
    if (bytes > left()) return nullptr;
    if (bytes > beyond(limit, uncached())) limit = uncached() + bytes;  // of an automatic budget
    reclaim(bytes - beyond(limit, in_use));
  }
}

// Without the mutex: a cache that frees memory says so, and is destroyed here if this thread is the
// last to hold it.
void Reservation::Account::reclaim(std::uint64_t bytes) NO_THREAD_SAFETY_ANALYSIS {
  const Cache* largest = nullptr;
  for (const Cache& cache : caches) {
    if (cache.inherited || cache.reclaimer.expired()) continue;
    if (!largest || cache.bytes > largest->bytes) largest = &cache;
  }
  std::shared_ptr<Reclaimer> reclaimer = largest ? largest->reclaimer.lock() : nullptr;
  Mutex& mutex = Registry::get().mutex;
  ++reclaiming;
  mutex.unlock();
  if (reclaimer) {
    reclaimer->reclaim(bytes);
    reclaimer.reset();
  } else {
    std::this_thread::yield();  // another thread is destroying the cache
  }
  mutex.lock();
  --reclaiming;
}

std::uint64_t Reservation::Account::share_of(const Cache& cache) const {
  std::uint64_t sharers = 1;
  for (const Cache& other : caches) {
    if (!other.inherited && other.bytes > 0 && &other != &cache) ++sharers;
  }
  return left() / sharers;
}

bool Reservation::Account::grow(Cache& cache, std::uint64_t bytes) {
  if (cache.inherited || cache.reclaimer.expired()) return false;
  const auto fits = [&] {
    return reclaiming == 0 && waiting.empty() &&
           bytes <= beyond(limit, most_uncached_lately() + cached);
  };
  if (!fits()) {
    const bool is_largest = std::ranges::none_of(
        caches, [&](const Cache& other) { return !other.inherited && other.bytes > cache.bytes; });
    if (reclaiming > 0 || !waiting.empty() || is_largest) return false;
    if (cache.bytes + bytes > share_of(cache)) return false;
    reclaim(bytes);
    if (!fits()) return false;
  }
  cache.bytes += bytes;
  cached += bytes;
  in_use += bytes;
  peak = std::max(peak, in_use);
  return true;
}

void Reservation::Account::shrink(Cache& cache, std::uint64_t bytes) {
  cache.bytes -= bytes;
  if (cache.inherited) return;
  cached -= bytes;
  in_use -= bytes;
  if (!waiting.empty()) Registry::get().changed().notify_all();
}

ReclaimableMemory::ReclaimableMemory(const Budget& budget, std::string_view what)
    : account_(budget.account_), cache_([&] {
        const MutexLock lock(Reservation::Account::Registry::get().mutex);
        account_->caches.push_back({std::string(what)});
        return &account_->caches.back();
      }()) {}

ReclaimableMemory::~ReclaimableMemory() {
  const MutexLock lock(Reservation::Account::Registry::get().mutex);
  account_->shrink(*cache_, cache_->bytes);
  account_->caches.remove_if([&](const Reservation::Cache& one) { return &one == cache_; });
}

void ReclaimableMemory::serve(std::weak_ptr<Reclaimer> reclaimer) {
  const MutexLock lock(Reservation::Account::Registry::get().mutex);
  cache_->reclaimer = std::move(reclaimer);
}

bool ReclaimableMemory::try_grow(std::uint64_t bytes) {
  if (account_->automatic) AutomaticBudgets::get().watch();  // also in a child of fork
  const MutexLock lock(Reservation::Account::Registry::get().mutex);
  return account_->grow(*cache_, bytes);
}

void ReclaimableMemory::shrink(std::uint64_t bytes) {
  const MutexLock lock(Reservation::Account::Registry::get().mutex);
  account_->shrink(*cache_, bytes);
}

std::uint64_t ReclaimableMemory::bytes() const {
  const MutexLock lock(Reservation::Account::Registry::get().mutex);
  return cache_->bytes;
}

std::uint64_t ReclaimableMemory::most_bytes() const {
  const MutexLock lock(Reservation::Account::Registry::get().mutex);
  return std::max(account_->share_of(*cache_), cache_->bytes);
}

void Reservation::Account::set_limit(std::uint64_t bytes) {
  limit = bytes;
  while (in_use > limit && cached > 0) reclaim(in_use - limit);
  if (!waiting.empty()) Registry::get().changed().notify_all();
}

Error Reservation::Account::refused_resize(std::uint64_t bytes) const {
  const std::uint64_t held = uncached() - in_reads;
  return Error(ErrorKind::kBudget, "resize",
               with_commas(bytes) + " bytes are less than the " + with_commas(held) +
                   " bytes in use" + holders_in_words() + "; the budget stays at " +
                   with_commas(limit) + " bytes")
      .hint("give at least " + with_commas((held + 1_MiB - 1) / 1_MiB) +
            " MiB, or close what holds it first: loaders, batches, arrays");
}

// Uses of the same name together: a loader has dozens of buffers.
std::vector<BudgetUse> Reservation::Account::uses() const {
  std::map<std::string, BudgetUse> by_name;
  for (const Holder& holder : holders) {
    if (holder.inherited) continue;
    BudgetUse& use = by_name[holder.what];
    use.what = holder.what;
    use.bytes += holder.bytes;
    ++use.count;
  }
  std::vector<BudgetUse> list;
  list.reserve(by_name.size());
  for (auto& [name, use] : by_name) list.push_back(std::move(use));
  return list;
}

std::string Reservation::Account::holders_in_words() const {
  std::string held;
  for (const BudgetUse& use : uses()) {
    held += (held.empty() ? " (" : ", ") + use.what + " " + with_commas(use.bytes);
    if (use.count > 1) held += " in " + with_commas(use.count);
  }
  return held.empty() ? held : held + ")";
}

Error Reservation::Account::refusal(std::uint64_t bytes, std::string_view what) const {
  const std::string held = holders_in_words();
  // Caches would give way, so what they hold is among what is left.
  const std::uint64_t most = most_uncached(), free = left();
  std::string in_caches;
  if (cached > 0) in_caches = ", of which " + with_commas(cached) + " hold cached blocks now";
  // Buffers that arrays and loaders size by the limit take at most half of what it is raised by, so
  // twice what is missing is enough. In whole MiB, so that the number works as it is printed.
  const std::uint64_t missing = bytes - free;
  const auto twice = checked_mul(missing, 2);
  const auto raised = twice ? checked_add(most, *twice) : std::nullopt;
  const auto enough = raised ? checked_add(*raised, 1_MiB - 1) : std::nullopt;
  return Error(ErrorKind::kBudget, "budget",
               std::string(what) + " need " + with_commas(bytes) + " bytes; the budget is " +
                   with_commas(most) + " bytes, of which " + with_commas(uncached()) +
                   " are in use" + held + ": " + with_commas(free) + " are left" + in_caches)
      .hint(automatic ? "use a budget of a fixed size, or ask for less at a time"
            : enough  ? "raise the budget to " + with_commas(*enough / 1_MiB) +
                           " MiB, or ask for less at a time"
                     : "ask for less at a time");
}

Reservation::Reservation(std::shared_ptr<Account> account, Holder* holder)
    : account_(std::move(account)), holder_(holder), bytes_(holder->bytes) {}

Reservation::Reservation(Reservation&& other) noexcept { *this = std::move(other); }

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  if (this == &other) return *this;
  release();
  account_ = std::move(other.account_);
  holder_ = std::exchange(other.holder_, nullptr);
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

Reservation::~Reservation() { release(); }

void Reservation::release() {
  if (!account_) return;
  account_->give_back(std::exchange(holder_, nullptr));
  account_.reset();
  bytes_ = 0;
}

void Reservation::keep_in_children() {
  if (!account_) return;
  const MutexLock lock(Reservation::Account::Registry::get().mutex);
  holder_->in_children = true;
}

Budget::Budget() {
  const AvailableMemory memory = available_memory();
  account_ = std::make_shared<Reservation::Account>(
      memory.bytes / 8,
      "one eighth of " + format_size(memory.bytes) + " available (" + memory.source + ")");
}

Budget::Budget(std::uint64_t bytes) : account_(std::make_shared<Reservation::Account>(bytes, "")) {}

Budget::Budget(std::shared_ptr<Reservation::Account> account) : account_(std::move(account)) {}

Budget Budget::automatic() {
  const AvailableMemory memory = available_memory();
  Budget budget(std::make_shared<Reservation::Account>(
      std::max<std::uint64_t>(memory.bytes / 8, kLeastAutomatic), "", true));
  AutomaticBudgets::get().add(budget);
  return budget;
}

bool Budget::is_automatic() const { return account_->automatic; }

void Budget::keep_watched() const {
  if (account_->automatic) AutomaticBudgets::get().watch();
}

void Budget::resize(std::uint64_t bytes) const {
  if (account_->automatic) {
    throw Error(ErrorKind::kInvalid, "resize", "an automatic budget cannot be resized")
        .hint("for a limit of your own, use a budget of a fixed size");
  }
  Reservation::Account::Registry& all = Reservation::Account::Registry::get();
  const MutexLock lock(all.mutex);
  const auto held = [&] { return account_->uncached() - account_->in_reads; };
  if (bytes < held()) throw account_->refused_resize(bytes);
  const std::uint64_t before = account_->limit;
  if (bytes != before) account_->origin = "resized from " + format_size(before);
  account_->set_limit(bytes);
  // Reads under way give back what they hold when they are done. As one that waits for memory, this
  // call is told, and no new read begins before.
  const std::uint64_t number = account_->next_waiting++;
  account_->waiting.insert(number);
  const auto soon = [] { return std::chrono::steady_clock::now() + std::chrono::milliseconds(50); };
  while (account_->in_use > account_->limit && account_->in_reads > 0) {
    all.changed().wait_until(all.mutex, soon());
  }
  account_->waiting.erase(number);
  all.changed().notify_all();
}

void Budget::follow(std::uint64_t bytes) const {
  const MutexLock lock(Reservation::Account::Registry::get().mutex);
  account_->set_limit(std::max(bytes, account_->uncached()));
}

Budget Budget::parse(std::string_view text, std::uint64_t processes_on_node) {
  constexpr std::string_view kAutomatic = "auto";
  if (text == kAutomatic) return automatic();
  if (text.starts_with(kAutomatic)) {
    throw Error(ErrorKind::kInvalid, "budget", "\"" + std::string(text) + "\" is not a size")
        .hint(
            "\"auto\" stands alone and follows memory pressure; a limit of your own is a size, "
            "such "
            "as \"2GiB\"");
  }
  constexpr std::string_view kPerNode = "/node";
  if (!text.ends_with(kPerNode)) return Budget(parse_size(text));
  const std::uint64_t node = parse_size(text.substr(0, text.size() - kPerNode.size()));
  const std::uint64_t sharers = processes_on_node == 0 ? 1 : processes_on_node;
  Budget budget(std::uint64_t{0});
  budget.account_ = std::make_shared<Reservation::Account>(
      node / sharers,
      format_size(node) + " a node shared by " + std::to_string(sharers) + " processes");
  return budget;
}

std::uint64_t Budget::limit() const { return account_->limit; }

std::uint64_t Budget::in_use() const {
  const MutexLock lock(Reservation::Account::Registry::get().mutex);
  return account_->in_use;
}

std::uint64_t Budget::peak() const {
  const MutexLock lock(Reservation::Account::Registry::get().mutex);
  return account_->peak;
}

std::uint64_t Budget::cached() const {
  const MutexLock lock(Reservation::Account::Registry::get().mutex);
  return account_->cached;
}

std::uint64_t Budget::left() const {
  const MutexLock lock(Reservation::Account::Registry::get().mutex);
  return account_->left();
}

std::vector<BudgetUse> Budget::uses() const {
  const MutexLock lock(Reservation::Account::Registry::get().mutex);
  std::vector<BudgetUse> uses = account_->uses();
  for (const Reservation::Cache& cache : account_->caches) {
    if (!cache.inherited && cache.bytes > 0) uses.push_back({cache.what, cache.bytes, 1});
  }
  return uses;
}

std::string Budget::describe() const {
  const MutexLock lock(Reservation::Account::Registry::get().mutex);
  const std::uint64_t bytes = account_->limit, in_caches = account_->cached;
  std::string text = format_size(bytes) + " (" + with_commas(bytes) + " bytes)";
  if (account_->automatic) {
    text += ", automatic: follows memory pressure, began with " + format_size(account_->began_with);
  } else if (!account_->origin.empty()) {
    text += ", " + account_->origin;
  }
  if (in_caches > 0) text += ", " + format_size(in_caches) + " of it cached blocks";
  return text;
}

std::optional<Reservation> Budget::try_reserve(std::uint64_t bytes, std::string_view what) const {
  keep_watched();
  const MutexLock lock(Reservation::Account::Registry::get().mutex);
  Reservation::Holder* holder = account_->take_from_caches(bytes, what, false);
  if (!holder) return std::nullopt;
  return Reservation(account_, holder);
}

Reservation Budget::reserve(std::uint64_t bytes, std::string_view what) const {
  keep_watched();
  const MutexLock lock(Reservation::Account::Registry::get().mutex);
  if (auto* holder = account_->take_from_caches(bytes, what, false))
    return Reservation(account_, holder);
  throw account_->refusal(bytes, what);
}

std::optional<Reservation> Budget::try_reserve_for_read(std::uint64_t bytes,
                                                        std::string_view what) const {
  keep_watched();
  const MutexLock lock(Reservation::Account::Registry::get().mutex);
  if (!account_->waiting.empty()) return std::nullopt;
  Reservation::Holder* holder = account_->take_from_caches(bytes, what, true);
  if (!holder) return std::nullopt;
  return Reservation(account_, holder);
}

bool Budget::fits_beside_reads(std::uint64_t bytes) const {
  const MutexLock lock(Reservation::Account::Registry::get().mutex);
  return account_->fits_beside_reads(bytes);
}

void Budget::require_fits_beside_reads(std::uint64_t bytes, std::string_view what) const {
  const MutexLock lock(Reservation::Account::Registry::get().mutex);
  if (!account_->fits_beside_reads(bytes)) throw account_->refusal(bytes, what);
}

Reservation Budget::reserve_for_read(std::uint64_t bytes, std::string_view what,
                                     const std::function<void()>& while_waiting) const {
  keep_watched();
  Reservation::Account::Registry& all = Reservation::Account::Registry::get();
  MutexLock lock(all.mutex);
  const std::uint64_t number = account_->next_waiting++;
  account_->waiting.insert(number);
  const auto leave_queue = [&] {
    account_->waiting.erase(number);
    // The next in the queue may fit now.
    if (!account_->waiting.empty()) all.changed().notify_all();
  };
  const auto soon = [] { return std::chrono::steady_clock::now() + std::chrono::milliseconds(50); };
  auto next_check = soon();  // kept when others give memory back, however often they do
  for (;;) {
    if (!account_->fits_beside_reads(bytes)) {
      leave_queue();
      throw account_->refusal(bytes, what);
    }
    if (*account_->waiting.begin() == number) {
      Reservation::Holder* holder = nullptr;
      try {
        holder = account_->take_from_caches(bytes, what, true);
      } catch (...) {  // the system has no memory
        leave_queue();
        throw;
      }
      if (holder) {
        leave_queue();
        return Reservation(account_, holder);
      }
    }
    const bool in_time = all.changed().wait_until(all.mutex, next_check);
    if (in_time && std::chrono::steady_clock::now() < next_check) continue;
    next_check = soon();
    if (!while_waiting) continue;
    lock.unlock();
    try {
      while_waiting();
    } catch (...) {
      lock.lock();
      leave_queue();
      throw;
    }
    lock.lock();
  }
}

}  // namespace evenkeel
