#include "write/document_index_writer.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <limits>
#include <optional>
#include <vector>

#include "evenkeel/bytes.h"
#include "evenkeel/error.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kIndexMemory = 1_MiB;

FileWriterOptions small(FileWriterOptions options, bool resume) {
  options.memory = kIndexMemory;
  options.checksums = false;
  options.resume = resume;
  return options;
}

template <class T>
void append_number(FileWriter& file, T number) {
  file.append(std::as_bytes(std::span(&number, 1)));
}

// Rewinds a resumed file to the first `bytes` bytes.
void resume_entries(FileWriter& file, bool resume, std::uint64_t bytes) {
  if (!resume) return;
  if (file.size() >= bytes) return file.rewind(bytes);
  throw Error(ErrorKind::kFormat, "resume",
              "the index has " + with_commas(file.size()) + " bytes, but the checkpoint needs " +
                  with_commas(bytes))
      .in(file.path())
      .hint("begin again without resume");
}

class DatatroveIndexWriter final : public DocumentIndexWriter {
 public:
  DatatroveIndexWriter(const std::string& tokens_path, const FileWriterOptions& options,
                       std::uint64_t documents, std::uint64_t tokens)
      : file_(tokens_path + ".index", small(options, options.resume)) {
    if (options.resume && !file_.checkpoint()) take_named(documents, tokens);
    resume_entries(file_, options.resume, documents * sizeof(std::uint64_t));
  }
  void add(std::uint64_t, std::uint64_t end) override { append_number(file_, end); }
  void save() override { file_.save({0, "datatrove index", "", ""}); }
  void complete(std::uint64_t) override { file_.complete(); }
  void commit() override { file_.commit(); }
  void forget() noexcept override { file_.discard(); }

 private:
  // The writer was killed after the index was renamed and before the tokens were. Copies the
  // entries from the renamed file.
  void take_named(std::uint64_t documents, std::uint64_t tokens) {
    std::ifstream named(file_.path(), std::ios::binary);
    std::array<std::uint64_t, 4096> some;
    std::uint64_t last = 0;
    for (std::uint64_t done = 0; done < documents;) {
      const std::uint64_t count = std::min<std::uint64_t>(some.size(), documents - done);
      const auto bytes = static_cast<std::streamsize>(count * sizeof some[0]);
      if (!named.read(reinterpret_cast<char*>(some.data()), bytes)) break;
      file_.append(std::as_bytes(std::span(some).first(count)));
      last = some[count - 1];
      done += count;
    }
    if (last != tokens) file_.rewind(0);  // it belongs to other tokens
  }

  FileWriter file_;
};

class MegatronIndexWriter final : public DocumentIndexWriter {
 public:
  MegatronIndexWriter(const std::string& tokens_path, DType dtype, const FileWriterOptions& options,
                      std::uint64_t documents)
      : index_path_(tokens_path.substr(0, tokens_path.size() - 4) + ".idx"),
        dtype_(dtype),
        lengths_(index_path_ + ".lengths", small(options, options.resume)),
        memory_(std::min(2 * kIndexMemory, options.budget.left() / 2)),
        share_(options.budget.reserve(memory_, "writing the index")),
        options_(small(options, false)) {
    options_.budget = Budget(memory_);
    resume_entries(lengths_, options.resume, documents * sizeof(std::int32_t));
  }

  void add(std::uint64_t tokens, std::uint64_t end) override {
    if (tokens > std::numeric_limits<std::int32_t>::max()) {
      throw Error(ErrorKind::kInvalid, "write",
                  "a document of " + with_commas(tokens) + " tokens, which ends at token " +
                      with_commas(end) + ", is too long for Megatron's index: the limit is " +
                      with_commas(std::numeric_limits<std::int32_t>::max()))
          .in(index_path_)
          .hint("end documents more often");
    }
    append_number(lengths_, static_cast<std::int32_t>(tokens));
  }
  void save() override { lengths_.save({0, "megatron lengths", "", ""}); }

  void complete(std::uint64_t documents) override {
    FileWriter& index = index_.emplace(index_path_, options_);
    const std::string magic("MMIDIDX\0\0", 9);
    index.append(std::as_bytes(std::span(magic)));
    append_number(index, std::uint64_t{1});
    append_number(index, static_cast<std::uint8_t>(megatron_code(dtype_)));
    append_number(index, documents);
    append_number(index, documents + 1);
    each_length(documents, [&](std::int32_t length) { append_number(index, length); });
    std::int64_t at = 0;
    each_length(documents, [&](std::int32_t length) {
      append_number(index, at);
      at += std::int64_t{length} * dtype_.size;
    });
    for (std::uint64_t i = 0; i <= documents; ++i)
      append_number(index, static_cast<std::int64_t>(i));
    index.complete();
  }
  void commit() override { index_->commit(); }
  void forget() noexcept override { lengths_.discard(); }

 private:
  template <class Use>
  void each_length(std::uint64_t documents, Use use) {
    std::vector<std::int32_t> some(16384);
    for (std::uint64_t first = 0; first < documents;) {
      const std::uint64_t count = std::min<std::uint64_t>(some.size(), documents - first);
      lengths_.read_at(first * sizeof some[0],
                       std::as_writable_bytes(std::span(some).first(count)));
      for (std::uint64_t i = 0; i < count; ++i) use(some[i]);
      first += count;
    }
  }

  const std::string index_path_;
  const DType dtype_;
  FileWriter lengths_;
  // Reserved now, because the budget may have nothing left at the end.
  const std::uint64_t memory_;
  const Reservation share_;
  FileWriterOptions options_;
  std::optional<FileWriter> index_;
};

}  // namespace

int megatron_code(DType dtype) {
  constexpr int kSigned[] = {2, 3, 4, 5};  // of 1, 2, 4 and 8 bytes
  if (dtype.kind == DTypeKind::kUint) return dtype.size == 1 ? 1 : dtype.size == 2 ? 8 : 0;
  if (dtype.kind != DTypeKind::kInt) return 0;
  return kSigned[dtype.size == 1 ? 0 : dtype.size == 2 ? 1 : dtype.size == 4 ? 2 : 3];
}

std::unique_ptr<DocumentIndexWriter> make_document_index(
    bool megatron, const std::string& tokens_path, DType dtype, const FileWriterOptions& options,
    std::uint64_t documents, std::uint64_t tokens) {
  if (megatron) {
    return std::make_unique<MegatronIndexWriter>(tokens_path, dtype, options, documents);
  }
  return std::make_unique<DatatroveIndexWriter>(tokens_path, options, documents, tokens);
}

}  // namespace evenkeel
