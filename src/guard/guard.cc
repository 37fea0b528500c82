#include "evenkeel/guard.h"

#include <fcntl.h>

#include <cerrno>
#include <utility>

#include "base/fd.h"
#include "base/per_process.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"
#include "guard/evictor.h"
#include "guard/own_mapping.h"

namespace evenkeel {
namespace {

GuardOptions checked(const GuardOptions& options) {
  if (options.budget < GuardOptions::kLeastBudget) {
    throw Error(ErrorKind::kInvalid, "guard",
                "a budget of " + format_size(options.budget) + " is too small")
        .hint("give at least " + format_size(GuardOptions::kLeastBudget));
  }
  return options;
}

// What a guard has in one process.
struct Own {
  explicit Own(const GuardOptions& options)
      : governor({options}, std::make_unique<OwnActivity>()) {}
  const Maps maps;
  PageMap pages;
  Evictor governor;  // uses the two: after them
};

}  // namespace

class Guard::Impl {
 public:
  explicit Impl(const GuardOptions& given)
      : options(given), own([given] { return std::make_unique<Own>(given); }) {}
  const GuardOptions options;
  PerProcess<Own> own;
};

Guard::Guard(const GuardOptions& options) : impl_(std::make_unique<Impl>(checked(options))) {}
Guard::~Guard() = default;

void Guard::add(const GuardMapping& mapping) {
  Own& own = impl_->own.get();
  auto held = std::make_unique<OwnMapping>(mapping, impl_->options, own.maps, own.pages);
  Fd fd(::fcntl(mapping.fd, F_DUPFD_CLOEXEC, 3));
  if (!fd) {
    throw Error::system("guard", errno, "descriptor " + std::to_string(mapping.fd))
        .hint("give an open descriptor of the mapped file");
  }
  own.governor.add(std::move(held), std::move(fd));
}

bool Guard::remove(const void* address) {
  return impl_->own.get().governor.remove(reinterpret_cast<std::uint64_t>(address));
}

GuardReport Guard::report() const { return impl_->own.get().governor.report(); }

}  // namespace evenkeel
