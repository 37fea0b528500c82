// Shared by all functions of the C interface: turns exceptions into codes, and checks pointers and
// sizes of structs.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "evenkeel/array.h"
#include "evenkeel/evenkeel.h"

namespace evenkeel::c {

// An object for each thread. exit() destroys thread_local objects before it calls handlers of
// atexit, and those may use this interface. So a thread has a pointer, and what it points to is
// freed when the thread ends, but not at exit of the main thread.
template <class T>
class OfThread {
 public:
  static T& get() {
    if (!object_) {
      object_ = new T;
      thread_local Owner owner;
    }
    return *object_;
  }
  static const T* if_made() { return object_; }

 private:
  struct Owner {
    ~Owner() {
      const bool is_main_thread = ::syscall(SYS_gettid) == ::getpid();
      if (!is_main_thread) delete std::exchange(object_, nullptr);
    }
  };
  static inline thread_local T* object_ = nullptr;
};

// Stores the current exception as the last error of this thread. Returns its code.
int keep_error(const char* function) noexcept;

// One call of a function of the interface. Its checks throw Error (kInvalid), which names the
// function.
class Call {
 public:
  explicit Call(const char* function) : function_(function) {}

  template <class T>
  T& need(T* pointer, const char* name) const {
    if (!pointer) throw wrong(std::string(name) + " is NULL");
    return *pointer;
  }
  std::string text(const char* given, const char* name) const { return &need(given, name); }

  template <class T>
  std::span<T> items(T* first, std::size_t count, const char* name) const {
    if (count > 0) need(first, name);
    return {first, count};
  }
  std::span<std::byte> room(void* out, std::size_t bytes) const {
    return items(static_cast<std::byte*>(out), bytes, "out");
  }

  // A copy of a struct that the caller filled, with the size of this version. NULL: all defaults.
  template <class S>
  S given(const S* from, const char* name) const {
    S known = {};
    if (from) {
      const std::size_t size = checked_size(from, name);
      std::memcpy(&known, from, std::min(size, sizeof known));
      if (size > sizeof known) require_zeros(from, sizeof known, size, name);
    }
    return known;
  }

  // Checks a struct that the library will fill. Call it before anything else is done.
  template <class S>
  void check_result(const S* out, const char* name) const {
    checked_size(&need(out, name), name);
  }
  template <class S>
  void give(S filled, S* out) const {
    const std::size_t size = out->size;
    filled.size = size;
    std::memcpy(out, &filled, std::min(size, sizeof filled));
    if (size > sizeof filled) {
      std::memset(reinterpret_cast<std::byte*>(out) + sizeof filled, 0, size - sizeof filled);
    }
  }

  // Converts a number to the smaller type that the library takes.
  template <class N>
  N number(std::uint64_t given, const char* name) const {
    if (given > std::numeric_limits<N>::max()) {
      throw wrong(std::string(name) + " is too large: " + with_commas(given));
    }
    return static_cast<N>(given);
  }

  Error wrong(std::string problem) const {
    return {ErrorKind::kInvalid, function_, std::move(problem)};
  }

 private:
  // `size` is the first field of every struct. All fields have its width, so a valid size is a
  // multiple of it.
  std::size_t checked_size(const void* from, const char* name) const;
  void require_zeros(const void* from, std::size_t begin, std::size_t end, const char* name) const;

  const char* function_;
};

// Runs the body of a function. The body gets the Call and returns nothing or a code.
template <class Body>
int call(const char* function, Body&& body) noexcept {
  try {
    if constexpr (std::is_void_v<std::invoke_result_t<Body, const Call&>>) {
      body(Call(function));
      return EVENKEEL_OK;
    } else {
      return body(Call(function));
    }
  } catch (...) {
    return keep_error(function);
  }
}

// Runs a body that makes a handle. If it fails, the handle is NULL.
template <class Handle, class Body>
int make(const char* function, Handle** out, Body&& body) noexcept {
  if (out) *out = nullptr;
  return call(function, [&](const Call& c) {
    c.need(out, "the pointer to the handle");
    *out = body(c).release();
  });
}

template <class Handle, class... Parts>
std::unique_ptr<Handle> handle(Parts&&... parts) {
  return std::unique_ptr<Handle>(new Handle{std::forward<Parts>(parts)...});
}

// Options that arrays, tokens and weights have in common.
Budget budget_of(const evenkeel_budget* given);
inline EngineKind engine_of(const char* name) {
  return name ? parse_engine(name) : EngineKind::kAuto;
}
inline PageCache page_cache_of(const char* name) {
  return name ? parse_page_cache(name) : PageCache::kSpare;
}
std::optional<std::uint64_t> cache_of(std::uint64_t given);
evenkeel_stats stats_of(const ArrayStats& stats);

}  // namespace evenkeel::c

struct evenkeel_budget {
  evenkeel::Budget budget;
};

struct evenkeel_array {
  evenkeel::Array array;
  std::string dtype, how, why;
};
