#include "remote/upload.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "base/checked.h"
#include "base/interruptible_wait.h"
#include "base/thread.h"
#include "base/visible.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"
#include "remote/answers.h"
#include "remote/upload_questions.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kMostMemory = 256_MiB;  // for parts, unless they must be larger
constexpr std::size_t kMostTag = 128;

// The smallest part size with which an object of `expected` bytes has at most kMostParts parts.
std::uint64_t part_for(std::uint64_t expected) {
  return std::max(Upload::kLeastPart, (expected / Upload::kMostParts / 1_MiB + 1) * 1_MiB);
}
constexpr std::uint64_t with_connection(std::uint64_t part) { return part + kConnectionMemory; }

}  // namespace

// Sends one part to the server, straight from its buffer.
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
    request.headers.emplace_back("Expect:");  // or servers that ignore it would delay by 1 s
    return request;
  }
  Outcome judge(HttpAnswer& answer, std::string& reason) override {
    tag_ = answer.etag;
    const Outcome outcome = TextTransfer::judge(answer, reason);
    if (outcome != Outcome::kDone || (!tag_.empty() && tag_.size() <= kMostTag)) return outcome;
    reason = tag_.empty() ? "the server sent no ETag for the part"
                          : "the server sent an ETag of " + std::to_string(tag_.size()) +
                                " characters; the limit is " + std::to_string(kMostTag);
    return Outcome::kRetry;
  }
  std::optional<std::uint64_t> offset() const override { return upload_.part_start(part_.number); }
  bool writes() const override { return true; }
  const Part& part() const { return part_; }
  const std::string& tag() const { return tag_; }

 private:
  const Upload& upload_;
  const Part part_;
  std::string tag_;
};

std::uint64_t Upload::least_budget(std::uint64_t expected) {
  return 4 * with_connection(part_for(expected));  // three quarters of it are three parts
}

void Upload::require_writable(const std::string& url) { bucket_address(url); }

void Upload::try_out(const std::string& url, const std::function<void()>& while_waiting) {
  const Address address = bucket_address(url);
  const auto store = std::make_shared<Store>(address, RemoteSettings::from_environment());
  drop_upload(address, store, begin_upload(address, store, while_waiting));
}

Upload::Upload(const std::string& url, const Budget& budget, std::uint64_t expected,
               std::function<void()> while_waiting)
    : url_(url),
      address_(bucket_address(url)),
      store_(std::make_shared<Store>(address_, RemoteSettings::from_environment())),
      while_waiting_(std::move(while_waiting)) {
  const std::uint64_t least = part_for(expected), left = budget.left(), share = left / 4 * 3;
  if (left < least_budget(expected)) {
    throw Error(ErrorKind::kBudget, "create",
                "an upload needs three parts of " + format_size(least) +
                    (least == kLeastPart ? ", the smallest that S3 accepts,"
                                         : ", because an object has at most " +
                                               with_commas(kMostParts) + " parts,") +
                    " and a third more: " + format_size(least_budget(expected)) +
                    "; the budget has " + format_size(left) + " left")
        .in(url)
        .hint("a budget that is " + format_size(round_up(least_budget(expected) - left, 1_MiB)) +
              " larger is enough");
  }
  const std::uint64_t usual = std::min(kMostMemory, share);
  part_bytes_ = std::max(least, usual / 8 / kLeastPart * kLeastPart);
  const std::uint64_t memory =
      std::min(share, std::max(kMostMemory, 3 * with_connection(part_bytes_)));
  // One part is being filled, the first part is kept, and the others are being sent.
  const std::uint64_t buffers = std::min<std::uint64_t>(memory / with_connection(part_bytes_),
                                                        store_->settings().connections + 2ULL);
  parts_at_once_ = buffers - 2;
  memory_ = PageBuffer(budget, buffers * part_bytes_, "parts to be sent");
  connections_ = budget.reserve(parts_at_once_ * kConnectionMemory, "connections");
  for (std::uint64_t i = 0; i < buffers; ++i) {
    free_.push_back(memory_.data() + (buffers - 1 - i) * part_bytes_);
  }
  id_ = begin_upload(address_, store_, while_waiting_);
  try {
    current_ = {take(), 1, 0};
    thread_ = start_needed_thread("create", [this] { work(); });
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
        // More transfers would wait for a connection and look stalled.
        for (; !jobs_.empty() && active.size() < parts_at_once_; jobs_.pop_front()) {
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
                    "an object has at most " + with_commas(kMostParts) + " parts, here of " +
                        format_size(part_bytes_) + ": " + format_size(size_) + " in all")
            .in(url_)
            .hint("give the number of rows (`shape`) or a larger budget, so that parts are larger");
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

void Upload::require_here(std::uint64_t offset, std::uint64_t length) const {
  const auto here = [&](const Part& part, std::uint64_t at) {
    const std::uint64_t start = part_start(part.number);
    return part.memory && at >= start && at < start + part.length;
  };
  // Bytes between the first part and the last were sent.
  const std::uint64_t end = offset + length;
  if (length == 0 || here(current_, offset)) return;
  if (here(first_, offset) && (here(first_, end - 1) || current_.number == 2)) return;
  throw Error(ErrorKind::kInvalid, "write",
              "bytes " + with_commas(offset) + " to " + with_commas(end) + " were sent already")
      .in(url_)
      .hint("an object is written from its beginning to its end; write a file to change it later");
}

void Upload::rewrite(std::uint64_t offset, std::span<const std::byte> bytes) {
  require_here(offset, bytes.size());
  for (const Part* part : {&first_, &current_}) {
    if (!part->memory) continue;
    const std::uint64_t start = part_start(part->number);
    const std::uint64_t from = std::max(offset, start);
    const std::uint64_t to = std::min(offset + bytes.size(), start + part->length);
    if (from >= to) continue;
    std::memcpy(part->memory + (from - start), bytes.data() + (from - offset), to - from);
  }
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
      body += "<Part><PartNumber>" + std::to_string(i + 1) + "</PartNumber><ETag>" +
              escape_markup(tags_[i]) + "</ETag></Part>";
    }
  }
  body += "</CompleteMultipartUpload>";
  const std::string old = object_version(address_, store_, while_waiting_);
  const bool answered = complete_upload(address_, store_, id_, body, while_waiting_);
  id_.clear();
  if (!answered) require_new_object(old);
  abort();  // ends the thread
}

// Called if the answer to the completion was lost and the upload no longer exists. Throws Error if
// the server dropped the parts instead of making the object.
void Upload::require_new_object(const std::string& old) const {
  const std::string now = object_version(address_, store_, while_waiting_);
  if (!old.empty() && now != old && now.ends_with(" " + std::to_string(size_))) return;
  throw Error(ErrorKind::kFormat, "write",
              "the server lost the upload: it knows neither its parts nor a new object of " +
                  with_commas(size_) + " bytes")
      .in(url_)
      .hint("write it again");
}

void Upload::abort() noexcept {
  {
    const MutexLock lock(mutex_);
    ending_ = true;
  }
  work_.notify_all();
  if (thread_.joinable()) thread_.join();
  if (id_.empty()) return;
  drop_upload(address_, store_, id_);
  id_.clear();
}

}  // namespace evenkeel
