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

// The process's view of its own memory: two descriptors that all guards share.
struct OwnProcess {
  const Maps maps;
  PageMap pages;
};

OwnProcess& own_process() {
  // Never destroyed: guards may outlive static objects.
  static auto& process = *new PerProcess<OwnProcess>([] { return std::make_unique<OwnProcess>(); });
  return process.get();
}

std::unique_ptr<Evictor> make_evictor(const GuardOptions& options) {
  return std::make_unique<Evictor>(Evictor::Options{options}, std::make_unique<OwnActivity>());
}

}  // namespace

class Guard::Impl {
 public:
  explicit Impl(const GuardOptions& given)
      : options(given), evictor([given] { return make_evictor(given); }) {}
  const GuardOptions options;
  PerProcess<Evictor> evictor;
};

Guard::Guard(const GuardOptions& options) : impl_(std::make_unique<Impl>(checked(options))) {}
Guard::~Guard() = default;

void Guard::add(const GuardMapping& mapping) {
  OwnProcess& process = own_process();
  auto guarded = std::make_unique<OwnMapping>(mapping, impl_->options, process.maps, process.pages);
  Fd fd;
  if (!mapping.closed_after_remove) {
    fd = Fd(::fcntl(mapping.fd, F_DUPFD_CLOEXEC, 3));
    if (!fd) {
      throw Error::system("guard", errno, "descriptor " + std::to_string(mapping.fd))
          .hint("pass an open descriptor of the mapped file");
    }
  }
  impl_->evictor.get().add(std::move(guarded), std::move(fd));
}

bool Guard::remove(const void* address) {
  return impl_->evictor.get().remove(reinterpret_cast<std::uint64_t>(address));
}

GuardReport Guard::report() const { return impl_->evictor.get().report(); }

}  // namespace evenkeel
