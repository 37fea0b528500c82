#include "remote/opening.h"

#include <algorithm>
#include <utility>

#include "base/visible.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"
#include "remote/answers.h"
#include "remote/response.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kHead = 4096;  // read at open; holds nearly every header

// Reads the first bytes of an object and, from the header fields, its size and version.
class HeadTransfer final : public Transfer {
 public:
  explicit HeadTransfer(std::shared_ptr<RemoteObject> object) : object_(std::move(object)) {
    object_->head.resize(kHead);
  }
  HttpRequest request() override {
    return object_->request(0, kHead - 1, reinterpret_cast<std::byte*>(object_->head.data()));
  }
  std::string path() const override { return object_->url; }
  bool found() const { return found_; }
  HttpAnswer& answer() { return answer_; }

  Outcome judge(HttpAnswer& answer, std::string& reason) override {
    if (may_pass(answer, object_->url, reason)) return Outcome::kRetry;
    if (answer.body == Body::kRange || answer.body == Body::kWholeObject)
      return take(answer, reason);
    if (answer.body == Body::kIgnoresRange) {
      throw Error(ErrorKind::kFormat, "open",
                  "the server ignores ranges: the request was for the first " + with_commas(kHead) +
                      " bytes, but it sent " +
                      (answer.content_length ? "all " + with_commas(*answer.content_length)
                                             : std::string("all of the object")))
          .in(object_->url)
          .hint("download the file, or use a server that answers range requests");
    }
    if (answer.body == Body::kOtherBytes) {
      throw Error(ErrorKind::kFormat, "open",
                  "requested bytes 0-" + std::to_string(kHead - 1) +
                      ", but the server answered with \"" + visible(answer.content_range) + "\"")
          .in(object_->url);
    }
    if (answer.body == Body::kCompressed) throw compressed_object("open", object_->url, answer);
    if (answer.status == 416) {  // the object is empty
      const auto range = parse_content_range(answer.content_range);
      if (range && range->total.value_or(0) > 0) {
        throw Error(ErrorKind::kFormat, "open",
                    "requested the first bytes, but the server answers that there are none (416) "
                    "in an object of " +
                        with_commas(*range->total) + " bytes")
            .in(object_->url)
            .hint("the server, or a proxy in front of it, is faulty");
      }
      object_->head.clear();
      object_->etag = answer.etag;
      found_ = true;
      return Outcome::kDone;
    }
    if (learnt_something(answer, *object_->store, renewals_)) return Outcome::kAgain;
    if (is_redirect(answer.status) && redirects_++ < kMostRedirects) {
      object_->redirect(answer);
      return Outcome::kAgain;
    }
    answer_ = std::move(answer);
    return Outcome::kDone;  // not found
  }

 private:
  Outcome take(HttpAnswer& answer, std::string& reason) {
    if (!answer.failure.empty()) {
      reason = answer.failure;
      return Outcome::kRetry;
    }
    object_->size = answer.written;
    if (answer.body == Body::kRange) {
      const auto range = parse_content_range(answer.content_range);
      if (!range || !range->total) {
        throw Error(ErrorKind::kFormat, "open", "the server does not say how long the object is")
            .in(object_->url);
      }
      object_->size = *range->total;
      if (answer.written < std::min(kHead, object_->size)) {
        reason = "the body ended after " + std::to_string(answer.written) + " bytes";
        return Outcome::kRetry;
      }
    }
    object_->head.resize(answer.written);
    object_->etag = answer.etag;
    object_->last_modified = answer.last_modified;
    found_ = true;
    return Outcome::kDone;
  }

  const std::shared_ptr<RemoteObject> object_;
  HttpAnswer answer_;
  unsigned renewals_ = 0, redirects_ = 0;
  bool found_ = false;
};

thread_local RemoteOpening* current_opening = nullptr;

}  // namespace

RemoteOpening* RemoteOpening::current() { return current_opening; }

RemoteOpening::RemoteOpening() : outer_(current_opening) { current_opening = this; }

RemoteOpening::RemoteOpening(const std::vector<std::string>& urls) : RemoteOpening() {
  try {
    look_up(urls);
  } catch (...) {
    current_opening = outer_;
    throw;
  }
}

RemoteOpening::~RemoteOpening() { current_opening = outer_; }

Transfers& RemoteOpening::transfers() {
  if (outer_) return outer_->transfers();
  if (!transfers_) {
    const RemoteSettings settings = RemoteSettings::from_environment();
    constexpr unsigned kMostAtOpen = 16;
    transfers_ =
        std::make_unique<Transfers>(settings, std::min(settings.connections, kMostAtOpen), totals_);
  }
  return *transfers_;
}

std::shared_ptr<Store> RemoteOpening::store_of(const Address& address) {
  if (outer_) return outer_->store_of(address);
  const std::string key = std::to_string(static_cast<int>(address.scheme)) + address.host;
  std::shared_ptr<Store>& store = stores_[key];
  if (!store) store = std::make_shared<Store>(address, RemoteSettings::from_environment());
  return store;
}

void RemoteOpening::look_up(const std::vector<std::string>& urls) {
  if (outer_) return outer_->look_up(urls);
  struct Asked {
    std::shared_ptr<RemoteObject> object;
    std::unique_ptr<HeadTransfer> transfer;
  };
  std::vector<Asked> asked;
  for (const std::string& url : urls) {
    if (!is_url(url) || found_.contains(url)) continue;
    auto object = std::make_shared<RemoteObject>();
    object->url = url;
    object->address = parse_address(url);
    if (object->address.is_bucket() && object->address.path.empty()) {
      throw Error(ErrorKind::kInvalid, "open", "the URL names a bucket, but no object in it")
          .in(url)
          .hint("write s3://bucket/key, or a pattern: s3://bucket/*.npy");
    }
    object->store = store_of(object->address);
    found_[url];  // so that a URL that is listed twice is requested once
    asked.push_back({object, std::make_unique<HeadTransfer>(object)});
  }
  if (asked.empty()) return;
  Transfers& transfers = this->transfers();
  constexpr std::size_t kTogether = 16;
  std::vector<Transfer*> done;
  try {
    for (std::size_t next = 0; next < asked.size() || transfers.active() > 0;) {
      while (next < asked.size() && transfers.active() < kTogether) {
        transfers.start(*asked[next++].transfer);
      }
      transfers.wait(1000, done);
    }
  } catch (...) {
    transfers.cancel_all();
    for (const Asked& one : asked) found_.erase(one.object->url);
    throw;
  }
  for (Asked& one : asked) {
    Found& found = found_[one.object->url];
    if (one.transfer->found()) {
      found.object = one.object;
    } else {
      found.missing = std::move(one.transfer->answer());
    }
  }
}

const RemoteOpening::Found& RemoteOpening::look(const std::string& url) {
  look_up({url});
  return found_[url];
}

std::shared_ptr<const RemoteObject> RemoteOpening::find(const std::string& url) {
  if (outer_) return outer_->find(url);
  const Found& found = look(url);
  if (found.object) return found.object;
  // An object that may not be read counts as missing, as with files. If the caller may not list the
  // bucket, services also answer 403 for a key that does not exist.
  const int status = found.missing.status;
  if (status == 404 || status == 403 || status == 410 || status == 401) return nullptr;
  throw_refused(found.missing, url, *store_of(parse_address(url)), "open");
}

std::shared_ptr<const RemoteObject> RemoteOpening::get(const std::string& url) {
  if (outer_) return outer_->get(url);
  const Found& found = look(url);
  if (found.object) return found.object;
  throw_refused(found.missing, url, *store_of(parse_address(url)), "open");
}

std::shared_ptr<const RemoteObject> open_object(const std::string& url) {
  if (RemoteOpening* opening = RemoteOpening::current()) return opening->get(url);
  RemoteOpening own;
  return own.get(url);
}

bool object_exists(const std::string& url) {
  if (RemoteOpening* opening = RemoteOpening::current()) return opening->find(url) != nullptr;
  RemoteOpening own;
  return own.find(url) != nullptr;
}

std::string read_object(const RemoteObject& object, std::uint64_t offset, std::size_t length) {
  const std::uint64_t rest = offset < object.size ? object.size - offset : 0;
  const std::uint64_t wanted = std::min<std::uint64_t>(length, rest);
  if (wanted == 0) return {};
  if (offset + wanted <= object.head.size()) return object.head.substr(offset, wanted);
  std::string bytes(wanted, '\0');
  RangeTransfer transfer(object, offset, wanted, reinterpret_cast<std::byte*>(bytes.data()));
  if (RemoteOpening* opening = RemoteOpening::current()) {
    opening->transfers().run(transfer);
  } else {
    RemoteOpening own;
    own.transfers().run(transfer);
  }
  return bytes;
}

}  // namespace evenkeel
