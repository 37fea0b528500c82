// libcurl, loaded when it is first needed. Only for http.cc, which includes libcurl's headers.
#pragma once

#include <curl/curl.h>
#include <dlfcn.h>
#include <pthread.h>

#include <cerrno>
#include <csignal>
#include <ctime>
#include <string>

#include "evenkeel/error.h"

namespace evenkeel {

// The functions of libcurl, loaded when they are first needed. So programs that open no URL do not
// load libcurl, and the same binary runs on systems without it.
struct Curl {
// clang-format off
#define EVENKEEL_CURL_FUNCTIONS(X) \
  X(curl_global_init) X(curl_version_info) X(curl_easy_init) \
  X(curl_easy_cleanup) X(curl_easy_reset) X(curl_easy_setopt) \
  X(curl_easy_getinfo) X(curl_easy_strerror) X(curl_multi_init) \
  X(curl_multi_cleanup) X(curl_multi_setopt) X(curl_multi_add_handle) \
  X(curl_multi_remove_handle) X(curl_multi_socket_action) \
  X(curl_multi_info_read) X(curl_multi_strerror) X(curl_slist_append) \
  X(curl_slist_free_all)
// clang-format on
// NOLINTNEXTLINE(bugprone-macro-parentheses): it is a declaration
#define X(name) decltype(&::name) name = nullptr;
  EVENKEEL_CURL_FUNCTIONS(X)
#undef X
  std::string missing;  // why libcurl cannot be used; empty if it can

  Curl() {
    void* library = nullptr;
    for (const char* name : {"libcurl.so.4", "libcurl-gnutls.so.4", "libcurl.so"}) {
      library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
      if (library) break;
    }
    if (!library) {
      missing = "libcurl was not found on this system";
      return;
    }
#define X(name)                                                              \
  this->name = reinterpret_cast<decltype(&::name)>(::dlsym(library, #name)); \
  if (!this->name) missing = "the libcurl of this system has no " #name;
    EVENKEEL_CURL_FUNCTIONS(X)
#undef X
    if (missing.empty() && this->curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) {
      missing = "libcurl could not be started";
    }
  }

  static const Curl& get() {
    static const Curl curl;
    return curl;
  }
};

inline const Curl& usable_curl() {
  const Curl& curl = Curl::get();
  if (curl.missing.empty()) return curl;
  throw Error(ErrorKind::kInvalid, "open", "URLs cannot be read here: " + curl.missing)
      .hint("install libcurl (Debian: apt-get install libcurl4), then open the URL again");
}

// Blocks SIGPIPE for this thread while the object lives. Writing to a connection that the server
// closed raises it, and it would end the program.
class NoSigpipe {
 public:
  NoSigpipe() {
    ::sigemptyset(&pipe_);
    ::sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    ::sigpending(&pending);
    if (::sigismember(&pending, SIGPIPE) == 1) return;  // it is blocked already
    active_ = ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_) == 0;
  }
  ~NoSigpipe() {
    if (!active_) return;
    const int saved = errno;
    const timespec at_once{};
    while (::sigtimedwait(&pipe_, nullptr, &at_once) == -1 && errno == EINTR) {
    }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = saved;
  }
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;

 private:
  sigset_t pipe_, before_;
  bool active_ = false;
};

}  // namespace evenkeel
