// The implementation of Tokens, which loaders read from.
#pragma once

#include <memory>
#include <string>
#include <vector>

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
  const EngineKind engine;                   // as in the options
  const std::optional<std::uint64_t> cache;  // as in the options
  const std::string fingerprint;
  const std::vector<TokenFileInfo> files;
  const std::shared_ptr<Array::Impl> array;

  // Buffers for stored tokens, used by `xy`. Concurrent calls have a buffer each, as far as the
  // number of processors and the budget allow; other calls wait. Thread-safe.
  class Staging {
   public:
    Staging(const Budget& budget, const PageBuffer& first);

    // Takes a buffer for its lifetime.
    class Use {
     public:
      explicit Use(Staging& owner) : owner_(owner), data_(owner.take()) {}
      ~Use() { owner_.give_back(data_); }
      Use(const Use&) = delete;
      Use& operator=(const Use&) = delete;
      std::byte* data() const { return data_; }

     private:
      Staging& owner_;
      std::byte* const data_;
    };

   private:
    std::byte* take() EXCLUDES(mutex_);
    void give_back(std::byte* data) EXCLUDES(mutex_);

    const Budget budget_;
    const std::uint64_t bytes_;
    Mutex mutex_;
    CondVar given_back_;
    std::vector<PageBuffer> added_ GUARDED_BY(mutex_);
    std::vector<std::byte*> free_ GUARDED_BY(mutex_);
  };
  PageBuffer memory;
  PerProcess<Staging> staging;
};

// For loaders, which use the implementation.
struct TokenInternals {
  static Tokens::Impl& of(const Tokens& tokens) { return *tokens.impl_; }
};

// The error for a token that does not fit the dtype `out`.
Error token_too_large(const Layout& layout, DType out);

}  // namespace evenkeel
