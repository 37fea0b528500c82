#include "evenkeel/budget.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "base/account.h"
#include "base/automatic_budget.h"
#include "evenkeel/error.h"

namespace evenkeel {

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
        .hint("to set the limit yourself, use a budget of a fixed size");
  }
  Reservation::Account::Registry& all = Reservation::Account::Registry::get();
  const MutexLock lock(all.mutex);
  const auto held = [&] { return account_->uncached() - account_->in_reads; };
  if (bytes < held()) {
    const std::uint64_t spare = account_->spare_read_ahead();
    if (bytes + spare >= held()) account_->shorten_read_ahead(bytes);
    if (bytes < held()) throw account_->refused_resize(bytes, account_->spare_read_ahead());
  }
  const std::uint64_t before = account_->limit;
  if (bytes != before) account_->origin = "resized from " + format_size(before);
  account_->set_limit(bytes);
  // Reads in progress give back their memory when they are done. This call joins the queue of
  // waiting reads, so that it is notified then and no new read starts before.
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
            "\"auto\" takes no number: it follows memory pressure; for a fixed limit, use a size "
            "such as \"2GiB\"");
  }
  constexpr std::string_view kPerNode = "/node";
  if (!text.ends_with(kPerNode)) return Budget(parse_size(text));
  const std::uint64_t node = parse_size(text.substr(0, text.size() - kPerNode.size()));
  const std::uint64_t sharers = processes_on_node == 0 ? 1 : processes_on_node;
  Budget budget(std::uint64_t{0});
  budget.account_ = std::make_shared<Reservation::Account>(
      node / sharers,
      format_size(node) + " per node, shared by " + std::to_string(sharers) + " processes");
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
  return account_->uses(true);
}

std::string Budget::describe() const {
  const MutexLock lock(Reservation::Account::Registry::get().mutex);
  const std::uint64_t bytes = account_->limit, in_caches = account_->cached;
  std::string text = format_size(bytes) + " (" + with_commas(bytes) + " bytes)";
  if (account_->automatic) {
    text += ", automatic: follows memory pressure, started at " + format_size(account_->began_with);
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
  auto next_check = soon();  // not postponed when others give memory back
  for (;;) {
    if (!account_->fits_beside_reads(bytes)) {
      leave_queue();
      throw account_->refusal(bytes, what);
    }
    if (*account_->waiting.begin() == number) {
      Reservation::Holder* holder = nullptr;
      try {
        holder = account_->take_from_caches(bytes, what, true);
      } catch (...) {  // std::bad_alloc
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
    account_->waiting.insert(number);  // if it has forked: the queue of a child begins empty
  }
}

}  // namespace evenkeel
