#include "remote/http.h"

#include "base/fd.h"
#include "base/sys.h"
#include "evenkeel/error.h"
#include "remote/response.h"

#if EVENKEEL_HAVE_CURL
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <unordered_map>

#include "remote/libcurl.h"
#endif

namespace evenkeel {

#if EVENKEEL_HAVE_CURL
namespace {

// Failures that a retry cannot fix.
bool is_untrusted(CURLcode code) {
  return code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE ||
         code == CURLE_SSL_ISSUER_ERROR;
}

}  // namespace

struct HttpClient::Impl {
  struct Transfer {
    const Impl* owner = nullptr;
    CURL* easy = nullptr;
    curl_slist* headers = nullptr;
    HttpRequest request;
    HttpAnswer answer;
    std::uint64_t expected = 0;  // bytes that may go to `into`
    bool in_body = false, too_long = false;
    char words[CURL_ERROR_SIZE] = {};
  };

  const Curl& curl = usable_curl();
  CURLM* multi = nullptr;
  std::unordered_map<std::uint64_t, std::unique_ptr<Transfer>> transfers;
  std::vector<CURL*> idle;  // handles for reuse
  // libcurl reports which sockets it waits for, and when it must be called next. Only ready sockets
  // are then handled; `curl_multi_perform` would look at every connection every time.
  Fd ready{::epoll_create1(EPOLL_CLOEXEC)};
  std::int64_t timer = INT64_MAX;  // when to call libcurl next, on the monotonic clock

  static int on_socket(CURL*, curl_socket_t socket, int what, void* user, void*) {
    const int ready = static_cast<Impl*>(user)->ready.get();
    epoll_event event{};
    event.data.fd = socket;
    if (what != CURL_POLL_OUT) event.events |= EPOLLIN;
    if (what != CURL_POLL_IN) event.events |= EPOLLOUT;
    if (what == CURL_POLL_REMOVE) {
      ::epoll_ctl(ready, EPOLL_CTL_DEL, socket, &event);
    } else if (::epoll_ctl(ready, EPOLL_CTL_MOD, socket, &event) != 0) {
      return ::epoll_ctl(ready, EPOLL_CTL_ADD, socket, &event);
    }
    return 0;
  }

  static int on_timer(CURLM*, long milliseconds, void* user) {
    static_cast<Impl*>(user)->timer =
        milliseconds < 0 ? INT64_MAX : sys::monotonic_ns() + std::int64_t{milliseconds} * 1'000'000;
    return 0;
  }

  void look_at_clock() {
    if (timer > sys::monotonic_ns()) return;
    timer = INT64_MAX;
    int running = 0;
    curl.curl_multi_socket_action(multi, CURL_SOCKET_TIMEOUT, 0, &running);
  }

  // Waits for up to `milliseconds`, and lets libcurl handle ready sockets.
  void move(int milliseconds) {
    const std::int64_t left = timer == INT64_MAX ? INT64_MAX : timer - sys::monotonic_ns();
    const auto pause = static_cast<int>(
        std::clamp<std::int64_t>(left / 1'000'000 + (left % 1'000'000 > 0), 0, milliseconds));
    epoll_event events[kTogether];
    const int count = ::epoll_wait(ready.get(), events, kTogether, pause);
    for (int i = 0; i < count; ++i) {
      const std::uint32_t what = events[i].events;
      const int bits = ((what & EPOLLIN) != 0 ? CURL_CSELECT_IN : 0) |
                       ((what & EPOLLOUT) != 0 ? CURL_CSELECT_OUT : 0) |
                       ((what & (EPOLLERR | EPOLLHUP)) != 0 ? CURL_CSELECT_ERR : 0);
      int running = 0;
      curl.curl_multi_socket_action(multi, events[i].data.fd, bits, &running);
    }
    look_at_clock();
  }

  static constexpr int kTogether = 64;  // sockets handled per wait

  static std::size_t on_header(char* data, std::size_t size, std::size_t count, void* user) {
    auto& transfer = *static_cast<Transfer*>(user);
    // The body was judged by the header fields before it. Fields after it (trailers) are ignored.
    if (!transfer.in_body) take_header({data, size * count}, transfer.answer);
    return size * count;
  }

  std::size_t on_body(Transfer& transfer, const char* data, std::size_t length) const {
    HttpAnswer& answer = transfer.answer;
    if (!transfer.in_body) {
      transfer.in_body = true;
      long status = 0;
      curl.curl_easy_getinfo(transfer.easy, CURLINFO_RESPONSE_CODE, &status);
      answer.status = static_cast<int>(status);
      answer.body = judge_body(transfer.request, answer);
      if (answer.body == Body::kRange) {
        const ByteRange range = *parse_content_range(answer.content_range)->range;
        transfer.expected = range.last - range.first + 1;
      } else if (answer.body == Body::kWholeObject) {
        transfer.expected = *answer.content_length;
      }
    }
    switch (answer.body) {
      case Body::kText:
        if (answer.text.size() + length > kMostText) break;
        answer.text.append(data, length);
        return length;
      case Body::kRange:
      case Body::kWholeObject:
        if (!transfer.request.etag.empty() && !answer.etag.empty() &&
            answer.etag != transfer.request.etag) {
          return 0;  // the caller sees the ETag
        }
        if (length > transfer.expected - answer.written) break;
        std::memcpy(transfer.request.into + answer.written, data, length);
        answer.written += length;
        return length;
      default:
        return 0;  // answer.body says why
    }
    transfer.too_long = true;
    return 0;
  }

  static std::size_t on_data(char* data, std::size_t size, std::size_t count, void* user) {
    auto& transfer = *static_cast<Transfer*>(user);
    return transfer.owner->on_body(transfer, data, size * count);
  }

  template <class Value>
  void set(CURL* easy, CURLoption option, Value value) const {
    curl.curl_easy_setopt(easy, option, value);
  }

  CURL* take_handle() {
    CURL* easy = idle.empty() ? curl.curl_easy_init() : idle.back();
    if (!idle.empty()) idle.pop_back();
    if (!easy) throw Error::system("open", ENOMEM, "libcurl has no memory for a request");
    curl.curl_easy_reset(easy);
    return easy;
  }

  void begin(std::uint64_t id, const HttpRequest& request) {
    auto owned = std::make_unique<Transfer>();
    Transfer& transfer = *owned;
    transfer.owner = this;
    transfer.request = request;
    transfer.answer.id = id;
    transfer.answer.generation = request.generation;
    transfer.answer.redirected_to = request.redirected_to;
    if (request.range) transfer.answer.first = request.range->first;
    transfer.easy = take_handle();
    CURL* const easy = transfer.easy;
    for (const std::string& header : request.headers) {
      transfer.headers = curl.curl_slist_append(transfer.headers, header.c_str());
    }
    if (request.range) {
      const std::string range = "Range: bytes=" + std::to_string(request.range->first) + "-" +
                                std::to_string(request.range->last);
      transfer.headers = curl.curl_slist_append(transfer.headers, range.c_str());
    }
    set(easy, CURLOPT_URL, transfer.request.url.c_str());
    set(easy, CURLOPT_HTTPHEADER, transfer.headers);
    set(easy, CURLOPT_USERAGENT, "evenkeel");
    set(easy, CURLOPT_NOSIGNAL, 1L);
    set(easy, CURLOPT_PATH_AS_IS, 1L);
    set(easy, CURLOPT_FOLLOWLOCATION, 0L);  // redirects are judged by the caller
    if (curl.curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https") != CURLE_OK) {
      set(easy, static_cast<CURLoption>(181), 3L);  // CURLOPT_PROTOCOLS, before libcurl 7.85
    }
    set(easy, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_2TLS));
    set(easy, CURLOPT_BUFFERSIZE, static_cast<long>(kReceiveBuffer));
    set(easy, CURLOPT_TCP_KEEPALIVE, 1L);
    set(easy, CURLOPT_CONNECTTIMEOUT_MS, 10'000L);
    set(easy, CURLOPT_ERRORBUFFER, static_cast<char*>(transfer.words));
    set(easy, CURLOPT_HEADERFUNCTION, &Impl::on_header);
    set(easy, CURLOPT_HEADERDATA, static_cast<void*>(&transfer));
    set(easy, CURLOPT_WRITEFUNCTION, &Impl::on_data);
    set(easy, CURLOPT_WRITEDATA, static_cast<void*>(&transfer));
    set(easy, CURLOPT_PRIVATE, static_cast<void*>(&transfer));
    if (request.method != "GET") set(easy, CURLOPT_CUSTOMREQUEST, transfer.request.method.c_str());
    if (!request.payload.empty()) {
      set(easy, CURLOPT_POSTFIELDSIZE, static_cast<long>(request.payload.size()));
      set(easy, CURLOPT_POSTFIELDS, reinterpret_cast<const char*>(request.payload.data()));
    } else if (!request.body.empty() || request.method == "POST" || request.method == "PUT") {
      set(easy, CURLOPT_POSTFIELDSIZE, static_cast<long>(request.body.size()));
      set(easy, CURLOPT_POSTFIELDS, transfer.request.body.c_str());
    }
    if (request.past_proxies) set(easy, CURLOPT_PROXY, "");
    if (!request.ca_file.empty()) {
      set(easy, CURLOPT_CAINFO, transfer.request.ca_file.c_str());
    }
    const CURLMcode code = curl.curl_multi_add_handle(multi, easy);
    if (code != CURLM_OK) {
      release(transfer);
      throw Error::system(
          "read", EIO, std::string("libcurl rejects a request: ") + curl.curl_multi_strerror(code));
    }
    transfers[id] = std::move(owned);
  }

  void release(Transfer& transfer) {
    if (transfer.headers) curl.curl_slist_free_all(transfer.headers);
    transfer.headers = nullptr;
    idle.push_back(transfer.easy);
  }

  void end(std::uint64_t id) {
    const auto found = transfers.find(id);
    if (found == transfers.end()) return;
    curl.curl_multi_remove_handle(multi, found->second->easy);
    release(*found->second);
    transfers.erase(found);
  }

  HttpAnswer answer_of(Transfer& transfer, CURLcode code) const {
    HttpAnswer& answer = transfer.answer;
    long status = 0;
    curl.curl_easy_getinfo(transfer.easy, CURLINFO_RESPONSE_CODE, &status);
    answer.status = static_cast<int>(status);
    curl.curl_easy_getinfo(transfer.easy, CURLINFO_STARTTRANSFER_TIME, &answer.first_byte_s);
    curl.curl_easy_getinfo(transfer.easy, CURLINFO_TOTAL_TIME, &answer.total_s);
    if (!transfer.in_body && code == CURLE_OK && status >= 200 && status <= 299 &&
        transfer.request.range) {
      answer.body = judge_body(transfer.request, answer);  // the body is empty
    }
    const bool refused = answer.body == Body::kIgnoresRange || answer.body == Body::kOtherBytes ||
                         answer.body == Body::kCompressed;
    if (transfer.too_long) {
      answer.failure = "the server sent more bytes than it announced";
    } else if (code != CURLE_OK && !refused) {
      answer.failure = transfer.words[0] ? transfer.words : curl.curl_easy_strerror(code);
      answer.untrusted = is_untrusted(code);
      answer.hopeless = answer.untrusted || code == CURLE_URL_MALFORMAT;
    } else if (answer.body == Body::kRange || answer.body == Body::kWholeObject) {
      if (answer.written < transfer.expected) {
        answer.failure = "the body ended after " + std::to_string(answer.written) + " of " +
                         std::to_string(transfer.expected) + " bytes";
      }
    }
    return std::move(answer);
  }

  void collect(std::vector<HttpAnswer>& answers) {
    int left = 0;
    while (const CURLMsg* message = curl.curl_multi_info_read(multi, &left)) {
      if (message->msg != CURLMSG_DONE) continue;
      const CURLcode code = message->data.result;
      Transfer* transfer = nullptr;
      curl.curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &transfer);
      const std::uint64_t id = transfer->answer.id;
      answers.push_back(answer_of(*transfer, code));
      end(id);
    }
  }
};

HttpClient::HttpClient(unsigned connections) : impl_(std::make_unique<Impl>()) {
  if (!impl_->ready) throw Error::system("open", errno, "cannot wait for connections");
  CURLM* const multi = impl_->multi = impl_->curl.curl_multi_init();
  if (!multi) throw Error::system("open", ENOMEM, "libcurl has no memory");
  const auto set = impl_->curl.curl_multi_setopt;
  set(multi, CURLMOPT_MAXCONNECTS, static_cast<long>(connections));
  set(multi, CURLMOPT_MAX_HOST_CONNECTIONS, static_cast<long>(connections));
  set(multi, CURLMOPT_SOCKETFUNCTION, &Impl::on_socket);
  set(multi, CURLMOPT_SOCKETDATA, static_cast<void*>(impl_.get()));
  set(multi, CURLMOPT_TIMERFUNCTION, &Impl::on_timer);
  set(multi, CURLMOPT_TIMERDATA, static_cast<void*>(impl_.get()));
}

HttpClient::~HttpClient() {
  const NoSigpipe quiet;
  while (!impl_->transfers.empty()) impl_->end(impl_->transfers.begin()->first);
  for (CURL* easy : impl_->idle) impl_->curl.curl_easy_cleanup(easy);
  impl_->curl.curl_multi_cleanup(impl_->multi);
}

void HttpClient::start(std::uint64_t id, const HttpRequest& request) {
  const NoSigpipe quiet;
  impl_->begin(id, request);
}

HttpAnswer HttpClient::cancel(std::uint64_t id) {
  const NoSigpipe quiet;
  HttpAnswer answer;
  answer.id = id;
  const auto found = impl_->transfers.find(id);
  if (found == impl_->transfers.end()) return answer;
  if (found->second->in_body) answer = impl_->answer_of(*found->second, CURLE_OK);
  impl_->end(id);
  return answer;
}

std::size_t HttpClient::in_flight() const { return impl_->transfers.size(); }

std::uint64_t HttpClient::written(std::uint64_t id) const {
  const auto found = impl_->transfers.find(id);
  if (found == impl_->transfers.end()) return 0;
  curl_off_t sent = 0;
  if (!found->second->request.payload.empty()) {
    impl_->curl.curl_easy_getinfo(found->second->easy, CURLINFO_SIZE_UPLOAD_T, &sent);
  }
  return found->second->answer.written + found->second->answer.text.size() +
         static_cast<std::uint64_t>(sent);
}

void HttpClient::work(int milliseconds, std::vector<HttpAnswer>& answers) {
  const NoSigpipe quiet;
  const std::size_t before = answers.size();
  impl_->look_at_clock();
  impl_->collect(answers);
  if (answers.size() > before || milliseconds == 0) return;
  impl_->move(milliseconds);
  impl_->collect(answers);
}

std::string describe_http(bool& available) {
  const Curl& curl = Curl::get();
  available = curl.missing.empty();
  if (!available) return curl.missing;
  const curl_version_info_data* version = curl.curl_version_info(CURLVERSION_NOW);
  std::string text = std::string("libcurl ") + version->version;
  if (version->ssl_version) text += std::string(", ") + version->ssl_version;
  if (version->features & CURL_VERSION_HTTP2) text += ", HTTP/2";
  return text;
}

#else

struct HttpClient::Impl {};

HttpClient::HttpClient(unsigned) {
  throw Error(ErrorKind::kInvalid, "open",
              "URLs cannot be read: this build of Evenkeel was made without libcurl's headers")
      .hint("install libcurl4-openssl-dev (Debian) and build Evenkeel again");
}
HttpClient::~HttpClient() = default;
void HttpClient::start(std::uint64_t, const HttpRequest&) {}
HttpAnswer HttpClient::cancel(std::uint64_t) { return {}; }
void HttpClient::work(int, std::vector<HttpAnswer>&) {}
std::size_t HttpClient::in_flight() const { return 0; }
std::uint64_t HttpClient::written(std::uint64_t) const { return 0; }

std::string describe_http(bool& available) {
  available = false;
  return "this build was made without libcurl's headers";
}

#endif

}  // namespace evenkeel
