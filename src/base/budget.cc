#include "evenkeel/budget.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <list>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "base/checked.h"
#include "base/mutex.h"
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

// Holders stay here when reservations move: one thread may name them while another moves its own.
// The mutex of all accounts guards its members.
struct Reservation::Account {
  struct Registry;

  explicit Account(std::uint64_t bytes, std::string origin_text);
  ~Account();
  Account(const Account&) = delete;
  Account& operator=(const Account&) = delete;

  const std::uint64_t limit;
  const std::string origin;  // where the number comes from, for describe()
  std::uint64_t in_use = 0, peak = 0;
  std::uint64_t in_reads = 0;  // the part of in_use that reads hold
  std::list<Holder> holders;
  // Reads that wait for memory, by number: the lowest is served first.
  std::set<std::uint64_t> waiting;
  std::uint64_t next_waiting = 0;

  // nullptr when it does not fit.
  Holder* take(std::uint64_t bytes, std::string_view what, bool of_read) {
    if (bytes > limit - in_use) return nullptr;
    holders.push_back({bytes, std::string(what), of_read});
    in_use += bytes;
    if (of_read) in_reads += bytes;
    peak = std::max(peak, in_use);
    return &holders.back();
  }
  bool fits_beside_reads(std::uint64_t bytes) const { return bytes <= limit - (in_use - in_reads); }
  void give_back(const Holder* holder);
  // In a child of fork: what the parent holds does not count here.
  void disinherit() {
    for (Holder& holder : holders) {
      if (holder.in_children || holder.inherited) continue;
      holder.inherited = true;
      in_use -= holder.bytes;
    }
    in_reads = 0;
    peak = in_use;
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

Reservation::Account::Account(std::uint64_t bytes, std::string origin_text)
    : limit(bytes), origin(std::move(origin_text)) {
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

Error Reservation::Account::refusal(std::uint64_t bytes, std::string_view what) const {
  std::string held;
  for (const BudgetUse& use : uses()) {
    held += (held.empty() ? " (" : ", ") + use.what + " " + with_commas(use.bytes);
    if (use.count > 1) held += " in " + with_commas(use.count);
  }
  if (!held.empty()) held += ")";
  // Buffers that arrays and loaders size by the limit take at most half of what it is raised by, so
  // twice what is missing is enough. In whole MiB, so that the number works as it is printed.
  const std::uint64_t missing = bytes - (limit - in_use);
  const auto twice = checked_mul(missing, 2);
  const auto raised = twice ? checked_add(limit, *twice) : std::nullopt;
  const auto enough = raised ? checked_add(*raised, 1_MiB - 1) : std::nullopt;
  return Error(ErrorKind::kBudget, "budget",
               std::string(what) + " need " + with_commas(bytes) + " bytes; the budget is " +
                   with_commas(limit) + " bytes, of which " + with_commas(in_use) + " are in use" +
                   held + ": " + with_commas(limit - in_use) + " are left")
      .hint(enough ? "raise the budget to " + with_commas(*enough / 1_MiB) +
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

Budget Budget::parse(std::string_view text, std::uint64_t processes_on_node) {
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

std::vector<BudgetUse> Budget::uses() const {
  const MutexLock lock(Reservation::Account::Registry::get().mutex);
  return account_->uses();
}

std::string Budget::describe() const {
  std::string text = format_size(account_->limit) + " (" + with_commas(account_->limit) + " bytes)";
  if (!account_->origin.empty()) text += ", " + account_->origin;
  return text;
}

std::optional<Reservation> Budget::try_reserve(std::uint64_t bytes, std::string_view what) const {
  const MutexLock lock(Reservation::Account::Registry::get().mutex);
  Reservation::Holder* holder = account_->take(bytes, what, false);
  if (!holder) return std::nullopt;
  return Reservation(account_, holder);
}

Reservation Budget::reserve(std::uint64_t bytes, std::string_view what) const {
  const MutexLock lock(Reservation::Account::Registry::get().mutex);
  if (auto* holder = account_->take(bytes, what, false)) return Reservation(account_, holder);
  throw account_->refusal(bytes, what);
}

std::optional<Reservation> Budget::try_reserve_for_read(std::uint64_t bytes,
                                                        std::string_view what) const {
  const MutexLock lock(Reservation::Account::Registry::get().mutex);
  if (!account_->waiting.empty()) return std::nullopt;
  Reservation::Holder* holder = account_->take(bytes, what, true);
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
      if (auto* holder = account_->take(bytes, what, true)) {
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
