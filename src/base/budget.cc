#include "evenkeel/budget.h"

#include <list>
#include <mutex>
#include <utility>

#include "evenkeel/error.h"

namespace evenkeel {

struct Reservation::Account {
  explicit Account(std::uint64_t bytes, std::string origin_text)
      : limit(bytes), origin(std::move(origin_text)) {}

  const std::uint64_t limit;
  const std::string origin;  // where the number comes from, for describe()
  std::mutex mutex;
  std::uint64_t in_use = 0, peak = 0;
  std::list<const Reservation*> holders;  // for the arithmetic in messages

  void replace(const Reservation* from, const Reservation* to) {
    std::lock_guard lock(mutex);
    for (auto& holder : holders) {
      if (holder == from) holder = to;
    }
  }
};

Reservation::Reservation(std::shared_ptr<Account> account, std::uint64_t bytes, std::string what)
    : account_(std::move(account)), bytes_(bytes), what_(std::move(what)) {
  std::lock_guard lock(account_->mutex);
  account_->holders.push_back(this);
}

Reservation::Reservation(Reservation&& other) noexcept { *this = std::move(other); }

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  if (this == &other) return *this;
  release();
  account_ = std::move(other.account_);
  bytes_ = std::exchange(other.bytes_, 0);
  what_ = std::move(other.what_);
  if (account_) account_->replace(&other, this);
  return *this;
}

Reservation::~Reservation() { release(); }

void Reservation::release() {
  if (!account_) return;
  {
    std::lock_guard lock(account_->mutex);
    account_->in_use -= bytes_;
    account_->holders.remove(this);
  }
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
  std::lock_guard lock(account_->mutex);
  return account_->in_use;
}

std::uint64_t Budget::peak() const {
  std::lock_guard lock(account_->mutex);
  return account_->peak;
}

std::string Budget::describe() const {
  std::string text = format_size(account_->limit) + " (" + with_commas(account_->limit) + " bytes)";
  if (!account_->origin.empty()) text += ", " + account_->origin;
  return text;
}

std::optional<Reservation> Budget::try_reserve(std::uint64_t bytes, std::string_view what) const {
  {
    std::lock_guard lock(account_->mutex);
    if (bytes > account_->limit - account_->in_use) return std::nullopt;
    account_->in_use += bytes;
    account_->peak = std::max(account_->peak, account_->in_use);
  }
  return Reservation(account_, bytes, std::string(what));
}

Reservation Budget::reserve(std::uint64_t bytes, std::string_view what) const {
  if (auto reservation = try_reserve(bytes, what)) return std::move(*reservation);
  std::string held;
  std::uint64_t in_use;
  {
    std::lock_guard lock(account_->mutex);
    in_use = account_->in_use;
    for (const Reservation* holder : account_->holders) {
      held += (held.empty() ? " (" : ", ") + holder->what_ + " " + with_commas(holder->bytes_);
    }
    if (!held.empty()) held += ")";
  }
  throw Error(ErrorKind::kBudget, "budget",
              std::string(what) + " need " + with_commas(bytes) + " bytes; the budget is " +
                  with_commas(limit()) + " bytes, of which " + with_commas(in_use) + " are in use" +
                  held + ": " + with_commas(limit() - in_use) + " are left")
      .hint("raise the budget to at least " + format_size(in_use + bytes) +
            ", or ask for less at a time");
}

}  // namespace evenkeel
