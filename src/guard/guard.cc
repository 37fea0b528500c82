#include "evenkeel/guard.h"

#include "base/per_process.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"
#include "guard/governor.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kLeastBudget = 4_MiB;

GuardOptions checked(const GuardOptions& options) {
  if (options.budget < kLeastBudget) {
    throw Error(ErrorKind::kInvalid, "guard",
                "a budget of " + format_size(options.budget) + " is too small")
        .hint("give at least " + format_size(kLeastBudget));
  }
  return options;
}

}  // namespace

class Guard::Impl {
 public:
  explicit Impl(const GuardOptions& options)
      : governor([options] { return std::make_unique<Governor>(options); }) {}
  PerProcess<Governor> governor;
};

Guard::Guard(const GuardOptions& options) : impl_(std::make_unique<Impl>(checked(options))) {}
Guard::~Guard() = default;
void Guard::add(const GuardMapping& mapping) { impl_->governor.get().add(mapping); }
bool Guard::remove(const void* address) { return impl_->governor.get().remove(address); }
GuardReport Guard::report() const { return impl_->governor.get().report(); }

}  // namespace evenkeel
