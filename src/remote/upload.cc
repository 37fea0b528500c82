#include "remote/upload.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "base/interruptible_wait.h"
#include "base/thread.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"
#include "remote/object.h"
#include "remote/sha256.h"
#include "remote/xml.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kMostPart = 64_MiB, kMostAtOnce = 16;

Address bucket_address(const std::string& url) {
  Address address = parse_address(url);
  if (address.scheme == Scheme::kS3 && !address.path.empty() && address.path.back() != '/') {
    return address;
  }
  throw Error(ErrorKind::kInvalid, "create",
              address.scheme == Scheme::kS3 ? "the name of an object is missing"
                                            : "outputs are files, or objects at s3://")
      .in(url)
      .hint("s3://bucket/name; other services with S3's interface: set AWS_ENDPOINT_URL_S3");
}

// What the server says in an element of its answer, by the end of its path: the outermost element
// is not called the same by all servers. Empty where there is none.
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
        body_(std::move(body)) {}
  HttpRequest request() override {
    ++requests_;
    HttpRequest request = store_->upload_request(method_, object_, fields_, hex_of(sha256(body_)));
    request.body = body_;
    request.headers.emplace_back("Content-Type: application/octet-stream");
    return request;
  }
  // A 200 may still tell of an error: it was sent before the work was done.
  Outcome judge(HttpAnswer& answer, std::string& reason) override {
    // The answer to an earlier request was lost: it may have been done.
    vanished_ = answer.status == 404 && requests_ > 1;
    if (vanished_) return Outcome::kDone;
    const Outcome outcome = TextTransfer::judge(answer, reason);
    const std::string code = outcome == Outcome::kDone ? element(text(), "Error/Code") : "";
    if (code.empty()) return outcome;
    reason = "the server says " + code + " " + element(text(), "Error/Message");
    return Outcome::kRetry;
  }
  bool vanished() const { return vanished_; }

 private:
  unsigned requests_ = 0;
  bool vanished_ = false;
  const Address object_;
  const std::string method_;
  const QueryFields fields_;
  const std::string body_;
};

}  // namespace

// One part on its way to the server, from the memory it lies in.
class Upload::PartTransfer final : public TextTransfer {
 public:
  PartTransfer(const Upload& upload, const Part& part)
      : TextTransfer(upload.url_, upload.store_, "write"), upload_(upload), part_(part) {}
  HttpRequest request() override {
    const QueryFields fields = {{"partNumber", std::to_string(part_.number)},
                                {"uploadId", upload_.id_}};
    HttpRequest request =
        store_->upload_request("PUT", upload_.address_, fields, "UNSIGNED-PAYLOAD");
    request.payload = {part_.memory, part_.length};
    request.headers.emplace_back("Content-Type: application/octet-stream");
    request.headers.emplace_back("Expect:");  // a server that does not know it costs a second
    return request;
  }
  Outcome judge(HttpAnswer& answer, std::string& reason) override {
    tag_ = answer.etag;
    const Outcome outcome = TextTransfer::judge(answer, reason);
    if (outcome != Outcome::kDone || !tag_.empty()) return outcome;
    reason = "the server did not name the part it was sent";
    return Outcome::kRetry;
  }
  std::optional<std::uint64_t> offset() const override { return upload_.part_start(part_.number); }
  const Part& part() const { return part_; }
  const std::string& tag() const { return tag_; }

 private:
  const Upload& upload_;
  const Part part_;
  std::string tag_;
};

Upload::Upload(const std::string& url, const Budget& budget, std::uint64_t memory,
               std::function<void()> while_waiting)
    : url_(url),
      address_(bucket_address(url)),
      store_(std::make_shared<Store>(address_, RemoteSettings::from_environment())),
      while_waiting_(std::move(while_waiting)),
      part_bytes_(
          std::clamp<std::uint64_t>(memory / 8 / kLeastPart * kLeastPart, kLeastPart, kMostPart)) {
  // The one that is filled, the first, and those that are sent.
  const std::uint64_t buffers =
      std::min(memory / (part_bytes_ + kConnectionMemory), kMostAtOnce + 2);
  if (buffers < 3) {
    throw Error(ErrorKind::kBudget, "create",
                "an upload takes three parts of " + format_size(kLeastPart) +
                    ", the least that S3 takes, and the budget leaves " + format_size(memory))
        .in(url)
        .hint("give a budget of 32 MiB or more");
  }
  parts_at_once_ = buffers - 2;
  memory_ = PageBuffer(budget, buffers * part_bytes_, "parts to be sent");
  connections_ = budget.reserve(parts_at_once_ * kConnectionMemory, "connections");
  for (std::uint64_t i = 0; i < buffers; ++i) {
    free_.push_back(memory_.data() + (buffers - 1 - i) * part_bytes_);
  }
  bool vanished = false;
  id_ = element(ask("POST", {{"uploads", ""}}, "", vanished), "/UploadId");
  if (id_.empty()) {
    throw Error(ErrorKind::kFormat, "create", "the server's answer names no upload")
        .in(url)
        .hint("the server must know multipart uploads");
  }
  try {
    current_ = {take(), 1, 0};
    thread_ = start_thread([this] { work(); });
  } catch (...) {
    abort();
    throw;
  }
}

Upload::~Upload() { abort(); }

std::string Upload::describe() const {
  return "multipart upload, parts of " + format_size(part_bytes_) + ", " +
         std::to_string(parts_at_once_) + " at a time";
}

std::string Upload::ask(const std::string& method, const QueryFields& fields,
                        const std::string& body, bool& vanished) {
  TransferTotals totals;
  Transfers transfers(store_->settings(), 1, totals);
  UploadQuestion question(address_, store_, method, fields, body);
  transfers.start(question);
  std::vector<Transfer*> done;
  try {
    while (done.empty()) {
      transfers.wait(50, done);
      if (done.empty() && while_waiting_) while_waiting_();
    }
  } catch (...) {
    transfers.cancel_all();
    throw;
  }
  vanished = question.vanished();
  return question.text();
}

void Upload::work() {
  TransferTotals totals;
  std::map<std::uint64_t, std::unique_ptr<PartTransfer>> active;
  try {
    Transfers transfers(store_->settings(), static_cast<unsigned>(parts_at_once_), totals);
    for (;;) {
      {
        const MutexLock lock(mutex_);
        while (jobs_.empty() && active.empty() && !ending_) work_.wait(mutex_);
        if (ending_) {
          transfers.cancel_all();
          return;
        }
        for (; !jobs_.empty(); jobs_.pop_front()) {
          const Part& part = jobs_.front();
          auto& transfer = active[part.number];
          transfer = std::make_unique<PartTransfer>(*this, part);
          transfers.start(*transfer);
        }
      }
      std::vector<Transfer*> done;
      transfers.wait(20, done);
      for (Transfer* one : done) {
        const auto& sent = static_cast<PartTransfer&>(*one);
        const Part part = sent.part();
        const MutexLock lock(mutex_);
        tags_[part.number - 1] = sent.tag();
        free_.push_back(part.memory);
        --unfinished_;
        active.erase(part.number);
      }
      if (!done.empty()) done_.notify_all();
    }
  } catch (...) {
    {
      const MutexLock lock(mutex_);
      error_ = std::current_exception();
    }
    done_.notify_all();
  }
}

void Upload::wait() { wait_interruptibly(mutex_, done_, while_waiting_); }

std::byte* Upload::take() {
  const MutexLock lock(mutex_);
  while (free_.empty() && !error_) wait();
  if (error_) std::rethrow_exception(error_);
  std::byte* const memory = free_.back();
  free_.pop_back();
  return memory;
}

void Upload::send(const Part& part) {
  {
    const MutexLock lock(mutex_);
    if (error_) std::rethrow_exception(error_);
    if (tags_.size() < part.number) tags_.resize(part.number);
    jobs_.push_back(part);
    ++unfinished_;
  }
  work_.notify_all();
}

void Upload::append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    if (current_.length == part_bytes_) {
      if (current_.number == kMostParts) {
        throw Error(ErrorKind::kInvalid, "write",
                    "an object has " + with_commas(kMostParts) + " parts at most, here of " +
                        format_size(part_bytes_) + ": " + format_size(size_) + " in all")
            .in(url_)
            .hint("a larger budget makes larger parts, of up to 64 MiB");
      }
      if (current_.number == 1) {
        first_ = current_;
      } else {
        send(current_);
      }
      const std::uint64_t number = current_.number + 1;
      current_ = {nullptr, number, 0};
      current_.memory = take();
    }
    const std::uint64_t now = std::min<std::uint64_t>(part_bytes_ - current_.length, bytes.size());
    std::memcpy(current_.memory + current_.length, bytes.data(), now);
    current_.length += now;
    size_ += now;
    bytes = bytes.subspan(now);
  }
}

void Upload::rewrite(std::uint64_t offset, std::span<const std::byte> bytes) {
  const auto put = [&](const Part& part) {
    const std::uint64_t start = part_start(part.number);
    if (!part.memory || offset < start || offset + bytes.size() > start + part.length) return false;
    std::memcpy(part.memory + (offset - start), bytes.data(), bytes.size());
    return true;
  };
  if (put(current_) || put(first_)) return;
  throw Error(ErrorKind::kInvalid, "write",
              "bytes " + with_commas(offset) + " to " + with_commas(offset + bytes.size()) +
                  " were sent already")
      .in(url_)
      .hint("an object is written from its beginning to its end; write a file to change it later");
}

void Upload::complete() {
  if (first_.memory) {
    send(first_);
    first_.memory = nullptr;
  }
  send(current_);
  current_.memory = nullptr;
  const MutexLock lock(mutex_);
  while (unfinished_ > 0 && !error_) wait();
  if (error_) std::rethrow_exception(error_);
}

void Upload::commit() {
  std::string body = "<CompleteMultipartUpload>";
  {
    const MutexLock lock(mutex_);
    for (std::size_t i = 0; i < tags_.size(); ++i) {
      body += "<Part><PartNumber>" + std::to_string(i + 1) + "</PartNumber><ETag>";
      for (const char c : tags_[i]) body += c == '"' ? "&quot;" : std::string(1, c);
      body += "</ETag></Part>";
    }
  }
  body += "</CompleteMultipartUpload>";
  bool vanished = false;
  ask("POST", {{"uploadId", id_}}, body, vanished);
  id_.clear();
  if (vanished && open_object(url_)->size != size_) {
    throw Error(ErrorKind::kFormat, "write",
                "the server lost the upload: it knows neither its parts nor an object of " +
                    with_commas(size_) + " bytes")
        .in(url_)
        .hint("write it again");
  }
  abort();  // ends the thread
}

void Upload::abort() noexcept {
  {
    const MutexLock lock(mutex_);
    ending_ = true;
  }
  work_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (id_.empty()) return;
  try {
    RemoteSettings settings = store_->settings();
    settings.attempts = std::min(settings.attempts, 3u);
    settings.stall_s = std::min(settings.stall_s, 5.0);
    TransferTotals totals;
    Transfers transfers(settings, 1, totals);
    UploadQuestion question(address_, store_, "DELETE", {{"uploadId", id_}}, "");
    transfers.run(question);
  } catch (...) {  // it stays at the server until a rule of the bucket removes it
  }
  id_.clear();
}

}  // namespace evenkeel
