#include "c/call.h"

#include <new>

namespace evenkeel::c {

namespace {

struct LastError {
  int code = EVENKEEL_OK, system_code = 0;
  std::string message, operation, path, hint;
};

using Last = OfThread<LastError>;
// Set if there was not even memory for the message.
thread_local bool message_is_lost = false;

int code_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kInvalid:
      return EVENKEEL_INVALID;
    case ErrorKind::kFormat:
      return EVENKEEL_FORMAT;
    case ErrorKind::kIndex:
      return EVENKEEL_INDEX;
    case ErrorKind::kBudget:
      return EVENKEEL_BUDGET;
    case ErrorKind::kSystem:
      return EVENKEEL_SYSTEM;
    case ErrorKind::kClosed:
      return EVENKEEL_CLOSED;
  }
  return EVENKEEL_INTERNAL;
}

// Describes the current exception.
LastError describe(const char* function) {
  try {
    throw;
  } catch (const Error& error) {
    return {code_of(error.kind()), error.code(), error.what(),
            error.operation(),     error.path(), error.hint_text()};
  } catch (const std::bad_alloc&) {
    return {EVENKEEL_NO_MEMORY, 0, std::string(function) + ": out of memory", function, {}, {}};
  } catch (const std::exception& error) {
    return {EVENKEEL_INTERNAL, 0, std::string(function) + ": " + error.what(), function, {}, {}};
  } catch (...) {
    return {EVENKEEL_INTERNAL, 0, std::string(function) + ": unknown exception", function, {}, {}};
  }
}

}  // namespace

int keep_error(const char* function) noexcept {
  try {
    LastError& last = Last::get();
    last = describe(function);
    message_is_lost = false;
    return last.code;
  } catch (...) {
    message_is_lost = true;
    return EVENKEEL_NO_MEMORY;
  }
}

std::size_t Call::checked_size(const void* from, const char* name) const {
  constexpr std::size_t kMost = 4096;  // far above the size in any version
  std::size_t size = 0;
  std::memcpy(&size, from, sizeof size);
  if (size < sizeof size || size % sizeof size != 0 || size > kMost) {
    throw wrong(std::string(name) + "->size is " + with_commas(size) + ", which no version uses")
        .hint("set all bytes of the struct to zero and `size` to its sizeof");
  }
  return size;
}

void Call::require_zeros(const void* from, std::size_t begin, std::size_t end,
                         const char* name) const {
  const auto* bytes = static_cast<const std::byte*>(from);
  for (std::size_t at = begin; at < end; ++at) {
    if (bytes[at] == std::byte{0}) continue;
    throw wrong(std::string(name) + " has a field at byte " + with_commas(at) +
                " that Evenkeel " EVENKEEL_VERSION " does not know")
        .hint("set it to zero, or use a newer library");
  }
}

std::optional<std::uint64_t> cache_of(std::uint64_t given) {
  if (given == 0) return std::nullopt;
  return given == EVENKEEL_NO_CACHE ? 0 : given;
}

evenkeel_stats stats_of(const ArrayStats& stats) {
  return {0,
          stats.cache_hits,
          stats.cache_misses,
          stats.cache_bytes,
          stats.bytes_from_cache,
          stats.bytes_from_page_cache,
          stats.bytes_from_disk,
          stats.requests,
          stats.in_flight,
          stats.wait_ns,
          stats.bytes_from_network,
          stats.retries,
          stats.hedges,
          stats.bytes_from_disk_cache,
          stats.bytes_from_mapping};
}

}  // namespace evenkeel::c

const char* evenkeel_version() { return EVENKEEL_VERSION; }

const char* evenkeel_message() {
  using namespace evenkeel::c;
  if (message_is_lost) return "out of memory";
  const LastError* const last = Last::if_made();
  return last ? last->message.c_str() : "";
}

int evenkeel_last_error(evenkeel_error* error) {
  using namespace evenkeel::c;
  return call(__func__, [&](const Call& c) {
    c.check_result(error, "error");
    const LastError* const last = Last::if_made();
    if (message_is_lost) {
      c.give({0, EVENKEEL_NO_MEMORY, 0, evenkeel_message(), "", "", ""}, error);
    } else if (!last) {
      c.give({0, EVENKEEL_OK, 0, "", "", "", ""}, error);
    } else {
      c.give({0, last->code, last->system_code, last->message.c_str(), last->operation.c_str(),
              last->path.c_str(), last->hint.c_str()},
             error);
    }
  });
}
