#include "write/file_writer.h"

#include <algorithm>
#include <cstring>

#include "base/checked.h"
#include "base/hash.h"
#include "base/per_process.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kAlign = OutputFile::kAlignment;

// Disk space is allocated in steps that grow with the file, from a few blocks to 1 GiB.
std::uint64_t next_allocation(std::uint64_t end, std::uint64_t block_bytes) {
  return end + std::clamp<std::uint64_t>(end / 2, 4 * block_bytes, 1_GiB);
}

void require_url(const std::string& url, bool resume, bool checksums) {
  if (resume || checksums) {
    throw Error(ErrorKind::kInvalid, "create",
                resume ? "an upload that was ended cannot be resumed"
                       : "checksums lie beside files, not beside objects")
        .in(url)
        .hint(resume ? "begin again without resume, or write a file and copy it"
                     : "the server has its own checksums; leave them out here");
  }
  Upload::require_writable(url);
}

}  // namespace

void FileWriter::require_writable(const std::string& path, const WriteOptions& options) {
  if (is_url(path)) require_url(path, options.resume, options.checksums);
}

FileWriter::FileWriter(const std::string& path, const FileWriterOptions& options)
    : budget_(options.budget), generation_(ForkGeneration::now()) {
  if (is_url(path)) {
    require_url(path, options.resume, options.checksums);
    upload_ =
        std::make_unique<Upload>(path, budget_, options.expected_bytes, options.while_waiting);
    return;
  }
  file_ = std::make_unique<OutputFile>(path, options.resume, options.allow_direct);
  const std::uint64_t memory = std::min(options.memory, budget_.left() / 2);
  queue_ = std::make_unique<WriteQueue>(*file_, budget_, choose_queue(memory, file_->direct()),
                                        options.while_waiting);
  if (options.checksums) checksums_.emplace();
  block_ = queue_->take();
  if (checkpoint() && checkpoint()->size > 0) move_end(checkpoint()->size);
}

FileWriter::~FileWriter() {
  if (generation_ == ForkGeneration::now()) return;
  static_cast<void>(upload_.release());
  static_cast<void>(queue_.release());  // threads and file belong to the parent process
  static_cast<void>(file_.release());
}

std::string FileWriter::describe() const {
  if (upload_) return upload_->describe();
  const QueueSize& size = queue_->size();
  return std::string(file_->direct() ? "O_DIRECT"
                                     : "page cache, synced and dropped block by block") +
         ", " + std::to_string(size.threads) + (size.threads == 1 ? " thread, " : " threads, ") +
         std::to_string(size.blocks) + " blocks of " + format_size(size.block_bytes);
}

void FileWriter::require_usable() const {
  if (generation_ != ForkGeneration::now()) {
    throw Error(ErrorKind::kClosed, "write", "this process is a child of the writing process")
        .in(path());
  }
  if (completed_) throw Error(ErrorKind::kClosed, "write", "the file is complete").in(path());
  if (failed_) {
    throw Error(ErrorKind::kClosed, "write", "an earlier write failed or was interrupted")
        .in(path())
        .hint("create a new writer; with resume it continues at the last checkpoint");
  }
}

void FileWriter::require_file(const char* what) const {
  if (!upload_) return;
  throw Error(ErrorKind::kInvalid, "write", std::string("an object cannot be ") + what)
      .in(path())
      .hint("write a file and copy it");
}

// If `work` throws, the state of the writer is unknown, so later calls fail.
template <class Work>
void FileWriter::guarded(Work work) {
  require_usable();
  failed_ = true;
  work();
  failed_ = false;
}

void FileWriter::submit() {
  const std::uint64_t length = round_up(fill_, kAlign), block = queue_->size().block_bytes;
  std::memset(block_ + fill_, 0, length - fill_);
  file_->allocate(start_ + length, next_allocation(start_ + length, block));
  queue_->submit(block_, start_, length);
  block_ = nullptr;
  block_ = queue_->take();
}

void FileWriter::append(std::span<const std::byte> bytes) {
  guarded([&] {
    if (upload_) return upload_->append(bytes);
    const std::uint64_t block = queue_->size().block_bytes;
    if (checksums_) checksums_->append(bytes);
    while (!bytes.empty()) {
      const std::uint64_t now = std::min<std::uint64_t>(block - fill_, bytes.size());
      std::memcpy(block_ + fill_, bytes.data(), now);
      fill_ += now;
      bytes = bytes.subspan(now);
      if (fill_ < block) break;
      submit();
      start_ += block;
      fill_ = 0;
    }
  });
}

void FileWriter::flush() {
  queue_->drain();
  if (fill_ == 0) return;
  const std::uint64_t length = round_up(fill_, kAlign);
  std::memset(block_ + fill_, 0, length - fill_);
  file_->allocate(start_ + length, start_ + length);
  file_->write(start_, {block_, length});
}

void FileWriter::move_end(std::uint64_t offset) {
  flush();
  if (checksums_) checksums_->change(std::min(size(), offset), offset - std::min(size(), offset));
  start_ = round_down(offset, kAlign);
  fill_ = offset - start_;
  if (fill_ > 0) file_->read(start_, {block_, kAlign});
}

void FileWriter::rewind(std::uint64_t size) {
  require_file("rewound");
  guarded([&] {
    if (size < this->size()) move_end(size);
  });
}

// Overwrites bytes in place. The first and last sector are read and written whole.
void FileWriter::rewrite(std::uint64_t offset, std::span<const std::byte> bytes) {
  queue_->drain();
  std::byte* const scratch = queue_->take();
  const std::uint64_t most = queue_->size().block_bytes;
  while (!bytes.empty()) {
    const std::uint64_t begin = round_down(offset, kAlign), head = offset - begin;
    const std::uint64_t now = std::min<std::uint64_t>(most - head, bytes.size());
    const std::uint64_t length = round_up(head + now, kAlign);
    if (head > 0) file_->read(begin, {scratch, kAlign});
    if ((head + now) % kAlign != 0 && (head == 0 || length > kAlign)) {
      file_->read(begin + length - kAlign, {scratch + length - kAlign, kAlign});
    }
    std::memcpy(scratch + head, bytes.data(), now);
    file_->write(begin, {scratch, length});
    offset += now;
    bytes = bytes.subspan(now);
  }
  queue_->give_back(scratch);
}

void FileWriter::write_at(std::uint64_t offset, std::span<const std::byte> bytes) {
  require_usable();
  if (bytes.empty()) return;
  if (upload_ && offset > size()) require_file("written out of order");
  if (upload_ && offset < size()) {  // check first: a rejected call must change nothing
    upload_->require_here(offset, std::min<std::uint64_t>(size() - offset, bytes.size()));
  }
  if (offset > size()) {
    guarded([&] { move_end(offset); });
  }
  if (offset < size()) {
    guarded([&] {
      const std::uint64_t old = std::min<std::uint64_t>(size() - offset, bytes.size());
      if (upload_) {
        upload_->rewrite(offset, bytes.first(old));
        bytes = bytes.subspan(old);
        return;
      }
      if (checksums_) checksums_->change(offset, old);
      const std::uint64_t on_disk = offset < start_ ? std::min(old, start_ - offset) : 0;
      rewrite(offset, bytes.first(on_disk));
      if (on_disk < old) {
        std::memcpy(block_ + (offset + on_disk - start_), bytes.data() + on_disk, old - on_disk);
      }
      bytes = bytes.subspan(old);
    });
  }
  append(bytes);
}

void FileWriter::extend(std::uint64_t size) {
  static constexpr std::byte kZeros[4096] = {};
  if (file_ && size > this->size()) return write_at(size - 1, {kZeros, 1});
  while (this->size() < size) {
    append({kZeros, std::min<std::uint64_t>(sizeof kZeros, size - this->size())});
  }
}

void FileWriter::read_at(std::uint64_t offset, std::span<std::byte> bytes) {
  require_file("read while it is written");
  guarded([&] {
    queue_->drain();
    std::byte* const scratch = queue_->take();
    const std::uint64_t most = queue_->size().block_bytes;
    while (!bytes.empty() && offset < start_) {
      const std::uint64_t begin = round_down(offset, kAlign), head = offset - begin;
      const std::uint64_t now =
          std::min({most - head, static_cast<std::uint64_t>(bytes.size()), start_ - offset});
      file_->read(begin, {scratch, round_up(head + now, kAlign)});
      std::memcpy(bytes.data(), scratch + head, now);
      offset += now;
      bytes = bytes.subspan(now);
    }
    queue_->give_back(scratch);
    if (!bytes.empty()) std::memcpy(bytes.data(), block_ + (offset - start_), bytes.size());
  });
}

void FileWriter::save(Checkpoint checkpoint) {
  require_file("resumed: there are no checkpoints");
  guarded([&] {
    flush();
    queue_->sync();
    checkpoint.size = size();
    file_->save(checkpoint);
  });
}

void FileWriter::take_checksums() {
  const std::uint64_t size = this->size(), most = queue_->size().block_bytes;
  std::byte* const scratch = queue_->take();  // needs no new memory, which might be missing now
  const Checksums all = checksums_->finish(size, [&](std::uint64_t number) {
    const std::uint64_t begin = number * kChecksumBlock;
    const std::uint64_t length = std::min(kChecksumBlock, size - begin);
    RunningXxh3 hash;
    for (std::uint64_t at = 0; at < length; at += most) {
      const std::uint64_t now = std::min(most, length - at);
      file_->read(begin + at, {scratch, round_up(now, kAlign)});
      hash.append({scratch, now});
    }
    return hash.hash();
  });
  queue_->give_back(scratch);
  checksums_text_ = all.text();
}

void FileWriter::complete() {
  guarded([&] {
    if (upload_) return upload_->complete();
    flush();
    if (checksums_) take_checksums();
    file_->resize(size());
    queue_->sync();
  });
  completed_ = true;
}

void FileWriter::commit() {
  if (upload_) return upload_->commit();
  // Remove the checksums of the old file before it is replaced: none are better than wrong ones.
  const std::string beside = Checksums::path_of(path());
  sys::unlink(beside.c_str());
  file_->commit();
  if (checksums_) replace_file(beside, checksums_text_);
}

void FileWriter::discard() noexcept {
  if (generation_ != ForkGeneration::now()) return;
  if (upload_) upload_->abort();
  if (file_) file_->discard();
}

}  // namespace evenkeel
