#include "remote/upload_questions.h"

#include <algorithm>
#include <utility>

#include "base/per_process.h"
#include "evenkeel/error.h"
#include "remote/answers.h"
#include "remote/response.h"
#include "remote/sha256.h"
#include "remote/xml.h"

namespace evenkeel {
namespace {

// The text of an element of the answer; empty if there is none. `path` is the end of its path,
// because servers differ in the name of the outermost element.
std::string element(const std::string& xml, std::string_view path) {
  try {
    for (XmlReader reader(xml); reader.next();) {
      if (reader.path().ends_with(path)) return reader.text();
    }
  } catch (const XmlError&) {
    return {};
  }
  return {};
}

// A request about the upload, with a short body or none.
class UploadQuestion final : public TextTransfer {
 public:
  UploadQuestion(const Address& object, std::shared_ptr<Store> store, std::string method,
                 QueryFields fields, std::string body)
      : TextTransfer(object.text(), std::move(store), "write"),
        object_(object),
        method_(std::move(method)),
        fields_(std::move(fields)),
        body_(std::move(body)),
        of_upload_(!fields_.empty() && fields_.front().first == "uploadId") {}
  HttpRequest request() override {
    ++requests_;
    HttpRequest request = store_->upload_request(method_, object_, fields_, hex_of(sha256(body_)));
    request.body = body_;
    request.headers.emplace_back("Content-Type: application/octet-stream");
    return request;
  }
  // An answer with status 200 may still contain an error, because it is sent before the work is
  // done.
  Outcome judge(HttpAnswer& answer, std::string& reason) override {
    // The answer to an earlier request was lost. That request may have succeeded.
    vanished_ = answer.status == 404 && requests_ > 1 && of_upload_;
    if (vanished_) return Outcome::kDone;
    const Outcome outcome = TextTransfer::judge(answer, reason);
    if (outcome != Outcome::kDone) return outcome;
    const ServiceError error = parse_service_error(text());
    if (error.code.empty()) return outcome;
    reason = "the server says " + error.words();
    return Outcome::kRetry;
  }
  bool writes() const override { return true; }
  bool vanished() const { return vanished_; }

 private:
  unsigned requests_ = 0;
  bool vanished_ = false;
  const Address object_;
  const std::string method_;
  const QueryFields fields_;
  const std::string body_;
  const bool of_upload_;
};

// Asks which object has the name now: its ETag, date and size. Empty if it may not be read.
class VersionQuestion final : public Transfer {
 public:
  VersionQuestion(const Address& object, std::shared_ptr<Store> store)
      : object_(object), store_(std::move(store)) {}
  HttpRequest request() override {
    HttpRequest request = store_->request(object_);
    request.range = ByteRange{0, 0};
    request.into = &byte_;
    return request;
  }
  std::string path() const override { return object_.text(); }
  Outcome judge(HttpAnswer& answer, std::string& reason) override {
    if (may_pass(answer, path(), reason)) return Outcome::kRetry;
    const auto range = parse_content_range(answer.content_range);
    const auto size = range ? range->total : answer.content_length;
    if (answer.status == 404) {
      version_ = "none";
    } else if ((answer.status == 200 || answer.status == 206 || answer.status == 416) && size) {
      version_ = answer.etag + " " + answer.last_modified + " " + std::to_string(*size);
    }
    return Outcome::kDone;
  }
  const std::string& version() const { return version_; }

 private:
  const Address object_;
  const std::shared_ptr<Store> store_;
  std::byte byte_{};
  std::string version_;
};

// Waits for the answer. Throws Error if there is none, unless it is not essential. `while_waiting`
// may fork, as a signal handler of Python may: the request is the parent's, and the wait of the
// child ends with an Error (kClosed).
void ask(const RemoteSettings& settings, Transfer& question,
         const std::function<void()>& while_waiting, bool essential = true) {
  TransferTotals totals;
  // Not even its destructor may run in a child.
  PerProcess<Transfers> owned([&] { return std::make_unique<Transfers>(settings, 1, totals); });
  owned.get().start(question);
  std::vector<Transfer*> done;
  while (Transfers* const transfers = owned.if_made()) {
    try {
      transfers->wait(50, done);
    } catch (const Error&) {
      if (essential) throw;
      return;
    }
    if (!done.empty()) return;
    if (while_waiting) while_waiting();
  }
  throw Error(ErrorKind::kClosed, "write", "this process is a child of the writing process")
      .in(question.path());
}

// Settings for requests whose answer is not essential: fewer attempts, shorter waits.
RemoteSettings impatient(RemoteSettings settings) {
  settings.attempts = std::min(settings.attempts, 3u);
  settings.stall_s = std::min(settings.stall_s, 5.0);
  return settings;
}

}  // namespace

Address bucket_address(const std::string& url) {
  Address address = parse_address(url);
  if (address.scheme == Scheme::kS3 && !address.path.empty() && address.path.back() != '/') {
    return address;
  }
  throw Error(ErrorKind::kInvalid, "create",
              address.scheme == Scheme::kS3 ? "the name of the object is missing"
                                            : "outputs are files, or objects at s3://")
      .in(url)
      .hint("s3://bucket/name; other services with S3's interface: set AWS_ENDPOINT_URL_S3");
}

std::string begin_upload(const Address& object, const std::shared_ptr<Store>& store,
                         const std::function<void()>& while_waiting) {
  UploadQuestion question(object, store, "POST", {{"uploads", ""}}, "");
  ask(store->settings(), question, while_waiting);
  std::string id = element(question.text(), "/UploadId");
  if (!id.empty()) return id;
  throw Error(ErrorKind::kFormat, "create", "the server's answer has no upload ID")
      .in(object.text())
      .hint("the server must support multipart uploads");
}

bool complete_upload(const Address& object, const std::shared_ptr<Store>& store,
                     const std::string& id, const std::string& parts,
                     const std::function<void()>& while_waiting) {
  RemoteSettings settings = store->settings();
  // Some servers join the parts before they send the first byte.
  settings.stall_s = std::max(settings.stall_s, settings.deadline_s / 2);
  UploadQuestion question(object, store, "POST", {{"uploadId", id}}, parts);
  ask(settings, question, while_waiting);
  return !question.vanished();
}

std::string object_version(const Address& object, const std::shared_ptr<Store>& store,
                           const std::function<void()>& while_waiting) {
  VersionQuestion question(object, store);
  ask(impatient(store->settings()), question, while_waiting, false);
  return question.version();
}

void drop_upload(const Address& object, const std::shared_ptr<Store>& store,
                 const std::string& id) noexcept {
  try {
    UploadQuestion question(object, store, "DELETE", {{"uploadId", id}}, "");
    ask(impatient(store->settings()), question, {});
  } catch (...) {  // the upload stays on the server until a lifecycle rule removes it
  }
}

}  // namespace evenkeel
