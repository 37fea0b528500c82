#include "evenkeel/budget.h"

#include <pthread.h>

#include <algorithm>
#include <list>
#include <map>
#include <mutex>
#include <utility>

#include "base/checked.h"
#include "evenkeel/error.h"

namespace evenkeel {
namespace {

// One for all budgets, and held across fork: reserving is rare, and a child must find every account
// whole, whatever the parent's threads were doing.
std::mutex& accounts_mutex() {
  static std::mutex* const mutex = [] {
    static std::mutex made;
    ::pthread_atfork([] { made.lock(); }, [] { made.unlock(); }, [] { made.unlock(); });
    return &made;
  }();
  return *mutex;
}

}  // namespace

// Who holds how much, for the arithmetic in messages.
struct Reservation::Holder {
  std::uint64_t bytes;
  std::string what;
};

// Holders stay here when reservations move: one thread may name them while another moves its own.
struct Reservation::Account {
  explicit Account(std::uint64_t bytes, std::string origin_text)
      : limit(bytes), origin(std::move(origin_text)) {}

  const std::uint64_t limit;
  const std::string origin;  // where the number comes from, for describe()
  std::uint64_t in_use = 0, peak = 0;
  std::list<Holder> holders;

  // With the mutex held: nullptr when it does not fit.
  Holder* take(std::uint64_t bytes, std::string_view what) {
    if (bytes > limit - in_use) return nullptr;
    holders.push_back({bytes, std::string(what)});
    in_use += bytes;
    peak = std::max(peak, in_use);
    return &holders.back();
  }
  void give_back(const Holder* holder) {
    std::lock_guard lock(accounts_mutex());
    in_use -= holder->bytes;
    holders.remove_if([&](const Holder& one) { return &one == holder; });
  }
};

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
  std::lock_guard lock(accounts_mutex());
  return account_->in_use;
}

std::uint64_t Budget::peak() const {
  std::lock_guard lock(accounts_mutex());
  return account_->peak;
}

std::string Budget::describe() const {
  std::string text = format_size(account_->limit) + " (" + with_commas(account_->limit) + " bytes)";
  if (!account_->origin.empty()) text += ", " + account_->origin;
  return text;
}

std::optional<Reservation> Budget::try_reserve(std::uint64_t bytes, std::string_view what) const {
  std::lock_guard lock(accounts_mutex());
  Reservation::Holder* holder = account_->take(bytes, what);
  if (!holder) return std::nullopt;
  return Reservation(account_, holder);
}

Reservation Budget::reserve(std::uint64_t bytes, std::string_view what) const {
  std::lock_guard lock(accounts_mutex());
  if (auto* holder = account_->take(bytes, what)) return Reservation(account_, holder);
  // Those of one name together: a loader has dozens of buffers.
  std::map<std::string, std::pair<std::uint64_t, std::size_t>> uses;
  for (const Reservation::Holder& holder : account_->holders) {
    auto& [sum, count] = uses[holder.what];
    sum += holder.bytes;
    ++count;
  }
  std::string held;
  for (const auto& [use, total] : uses) {
    held += (held.empty() ? " (" : ", ") + use + " " + with_commas(total.first);
    if (total.second > 1) held += " in " + with_commas(total.second);
  }
  if (!held.empty()) held += ")";
  const std::uint64_t in_use = account_->in_use;
  const auto needed = checked_add(in_use, bytes);
  throw Error(ErrorKind::kBudget, "budget",
              std::string(what) + " need " + with_commas(bytes) + " bytes; the budget is " +
                  with_commas(limit()) + " bytes, of which " + with_commas(in_use) + " are in use" +
                  held + ": " + with_commas(limit() - in_use) + " are left")
      .hint((needed ? "raise the budget to at least " + format_size(*needed) + ", or ask" : "ask") +
            std::string(" for less at a time"));
}

}  // namespace evenkeel
