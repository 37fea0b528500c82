// The implementation of Tokens; loaders read from it.
#pragma once

#include <memory>
#include <string>

#include "array/impl.h"
#include "base/memory.h"
#include "base/mutex.h"
#include "base/per_process.h"
#include "evenkeel/tokens.h"
#include "format/token_layout.h"

namespace evenkeel {

struct Tokens::Impl {
  Impl(TokenLayout layout, const TokensOptions& options);

  const Layout& layout() const { return array->layout; }

  const std::string format;
  const std::uint64_t first_token;           // of the stream in the files; above 0 for a slice
  const EngineKind engine;                   // as it was asked for
  const std::optional<std::uint64_t> cache;  // the same
  const std::string fingerprint;
  const std::shared_ptr<Array::Impl> array;

  // Tokens as they are stored, on their way to the caller of xy. One call at a time.
  struct Staging {
    Mutex mutex;
  };
  PageBuffer memory;
  PerProcess<Staging> staging;
};

// For the library itself: its loaders read through the implementation.
struct TokenInternals {
  static Tokens::Impl& of(const Tokens& tokens) { return *tokens.impl_; }
};

// The error for a token that is too large for the type it was asked for as.
Error token_too_large(const Layout& layout, DType out);

}  // namespace evenkeel
