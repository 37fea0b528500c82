#include "cli/descriptor_limit.h"

#include <sys/resource.h>

namespace evenkeel::cli {
namespace {

bool raised = false;
rlimit original;

}  // namespace

void raise_descriptor_limit() {
  if (raised || ::getrlimit(RLIMIT_NOFILE, &original) != 0) return;
  const rlimit most{original.rlim_max, original.rlim_max};
  raised = ::setrlimit(RLIMIT_NOFILE, &most) == 0;
}

void restore_descriptor_limit() {
  if (raised) ::setrlimit(RLIMIT_NOFILE, &original);
}

}  // namespace evenkeel::cli
