#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <limits>

#include "base/sys.h"
#include "evenkeel/bytes.h"
#include "evenkeel/write.h"
#include "remote/address.h"
#include "write/document_index_writer.h"
#include "write/file_writer.h"
#include "write/npy_header.h"
#include "write/options.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kLlmcHeader = 1024;

struct TokenFormat {
  std::string name;
  std::string path;  // of the tokens
};

TokenFormat token_format(const std::string& path, const std::string& format) {
  const bool idx = path.ends_with(".idx"), bin = path.ends_with(".bin");
  if (format == "megatron" || (format.empty() && idx)) {
    const std::string base = idx || bin ? path.substr(0, path.size() - 4) : path;
    return {"megatron", base + ".bin"};
  }
  if (format.empty()) {
    return {path.ends_with(".npy") ? "npy" : path.ends_with(".ds") ? "datatrove" : "nanogpt", path};
  }
  for (const std::string_view known : {"nanogpt", "llm.c", "datatrove", "npy"}) {
    if (format == known) return {format, path};
  }
  throw Error(ErrorKind::kInvalid, "create", "there is no token format \"" + format + "\"")
      .in(path)
      .hint("nanogpt, llm.c, megatron, datatrove or npy");
}

void require_integers(const std::string& path, const std::string& format, DType dtype) {
  const bool integer = dtype.kind == DTypeKind::kInt || dtype.kind == DTypeKind::kUint;
  const bool narrow = dtype.kind == DTypeKind::kUint && (dtype.size == 2 || dtype.size == 4);
  const bool fits = format == "llm.c" || format == "datatrove"
                        ? narrow
                        : integer && (format != "megatron" || megatron_code(dtype) != 0);
  if (fits) return;
  throw Error(ErrorKind::kInvalid, "create",
              format + " files cannot hold tokens of " + dtype.name())
      .in(path)
      .hint(format == "megatron" ? "uint8, int8, int16, int32, int64 or uint16"
            : narrow || integer  ? "uint16 or uint32"
                                 : "tokens are integers: uint16 or uint32");
}

TokenFormat require_format(const std::string& name, const TokenWriterOptions& options) {
  TokenFormat format = token_format(name, options.format);
  require_integers(format.path, format.name, options.dtype);
  if (is_url(format.path) && (format.name == "megatron" || format.name == "datatrove")) {
    throw Error(ErrorKind::kInvalid, "create",
                format.name + " files are a pair, which is not uploaded")
        .in(format.path)
        .hint("write files and copy them; nanogpt, llm.c and npy are uploaded");
  }
  return format;
}

struct Range {
  std::int64_t least, most;
};
Range range_of(DType dtype) {
  const unsigned bits = dtype.size * 8;
  if (dtype.kind == DTypeKind::kUint) {
    return {0,
            bits >= 64 ? std::numeric_limits<std::int64_t>::max() : (std::int64_t{1} << bits) - 1};
  }
  if (bits >= 64) {
    return {std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::max()};
  }
  return {-(std::int64_t{1} << (bits - 1)), (std::int64_t{1} << (bits - 1)) - 1};
}

}  // namespace

void require_writable(const std::string& path, const TokenWriterOptions& options) {
  FileWriter::require_writable(require_format(path, options).path, options);
}

struct TokenWriter::Impl {
  Impl(const std::string& name, const TokenWriterOptions& options)
      : format(require_format(name, options)),
        dtype(options.dtype),
        eot(options.eot),
        eot_first(format.name == "llm.c") {
    if (eot) require_fits({&*eot, 1});
    if (format.name == "llm.c") header = kLlmcHeader;
    if (format.name == "npy") header = header_bytes().size();
    FileWriterOptions own = file_options(options);
    file.emplace(format.path, own);
    const bool resumed = file->checkpoint().has_value();
    if (resumed) {
      require_kind(format.path, *file->checkpoint(), kind_text());
      state = file->checkpoint()->state;
      read_numbers(file->checkpoint()->numbers);
    } else if (header > 0) {
      const std::string bytes = header_bytes();
      file->append(std::as_bytes(std::span(bytes)));
    }
    own.resume = resumed;
    if (format.name == "megatron" || format.name == "datatrove") {
      index = make_document_index(format.name == "megatron", format.path, dtype, own, documents,
                                  tokens - document_tokens);
    }
  }

  std::string kind_text() const {
    return format.name + " " + dtype.name() + " eot " + (eot ? std::to_string(*eot) : "none");
  }
  std::string numbers_text() const {
    return std::to_string(tokens) + " " + std::to_string(documents) + " " +
           std::to_string(document_tokens);
  }
  void read_numbers(const std::string& text) {
    unsigned long long a = 0, b = 0, c = 0;
    if (std::sscanf(text.c_str(), "%llu %llu %llu", &a, &b, &c) != 3 ||
        header + a * dtype.size != file->checkpoint()->size) {
      throw Error(ErrorKind::kFormat, "resume", "the checkpoint does not fit the file")
          .in(format.path)
          .hint("begin again without resume");
    }
    tokens = a, documents = b, document_tokens = c;
  }

  std::string header_bytes() const {
    if (format.name == "npy") return npy_header_bytes(npy_descr_text(dtype), {tokens});
    std::array<std::int32_t, 256> words{};
    words[0] = dtype.size == 2 ? 20240520 : 20240801;
    words[1] = dtype.size == 2 ? 1 : 7;
    words[2] = static_cast<std::int32_t>(tokens);
    return {reinterpret_cast<const char*>(words.data()), sizeof words};
  }

  void require_fits(std::span<const std::int64_t> values) const {
    const Range range = range_of(dtype);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (values[i] >= range.least && values[i] <= range.most) continue;
      throw Error(ErrorKind::kInvalid, "write",
                  "token " + with_commas(tokens + i) + " is " + std::to_string(values[i]) + "; " +
                      dtype.name() + " holds " + std::to_string(range.least) + " to " +
                      std::to_string(range.most))
          .in(format.path)
          .hint("choose a larger dtype");
    }
  }

  void write_tokens(std::span<const std::byte> bytes) {
    const std::uint64_t count = bytes.size() / dtype.size;
    if (format.name == "llm.c" && count > std::numeric_limits<std::int32_t>::max() - tokens) {
      throw Error(ErrorKind::kInvalid, "write",
                  "a file of llm.c holds at most " +
                      with_commas(std::numeric_limits<std::int32_t>::max()) + " tokens; it has " +
                      with_commas(tokens) + ", and " + with_commas(count) + " more were given")
          .in(format.path)
          .hint("write several files; 100,000,000 tokens each is usual");
    }
    // Checked for each write, because at the end of the document it would be too late to split it.
    constexpr std::uint64_t kMostOfDocument = std::numeric_limits<std::int32_t>::max();
    if (format.name == "megatron" && count > kMostOfDocument - document_tokens) {
      throw Error(ErrorKind::kInvalid, "write",
                  "a document of Megatron's files has at most " + with_commas(kMostOfDocument) +
                      " tokens; this one has " + with_commas(document_tokens) + ", and " +
                      with_commas(count) + " more were given")
          .in(format.path)
          .hint("end documents more often");
    }
    file->append(bytes);
    tokens += count;
    document_tokens += count;
  }

  void write_values(std::span<const std::int64_t> values) {
    std::array<std::byte, 8192> block;
    const std::size_t most = block.size() / dtype.size;
    while (!values.empty()) {
      const auto now = values.first(std::min(most, values.size()));
      for (std::size_t i = 0; i < now.size(); ++i) {
        std::memcpy(block.data() + i * dtype.size, &now[i], dtype.size);  // little-endian
      }
      write_tokens({block.data(), now.size() * dtype.size});
      values = values.subspan(now.size());
    }
  }

  void begin_document() {
    if (eot && eot_first && document_tokens == 0) write_values({&*eot, 1});
  }

  void append(std::span<const std::byte> bytes) {
    if (bytes.size() % dtype.size != 0) {
      throw Error(
          ErrorKind::kInvalid, "write",
          with_commas(bytes.size()) + " bytes are not a whole number of tokens of " + dtype.name())
          .in(format.path);
    }
    if (bytes.empty()) return;
    begin_document();
    write_tokens(bytes);
  }

  void end_document() {
    begin_document();
    if (eot && !eot_first) write_values({&*eot, 1});
    record_document();
  }
  void record_document() {
    if (document_tokens == 0) return;  // empty documents are not recorded
    if (index) index->add(document_tokens, tokens);
    ++documents;
    document_tokens = 0;
  }

  void checkpoint(std::string_view user_state) {
    // Save the index first: it may be ahead of the tokens, but never behind.
    if (index) index->save();
    file->save({0, kind_text(), numbers_text(), std::string(user_state)});
  }

  void close() {
    if (index) record_document();
    if (header > 0) {
      const std::string bytes = header_bytes();
      file->write_at(0, std::as_bytes(std::span(bytes)));
    }
    file->complete();
    if (index) {
      index->complete(documents);
      // Remove the old tokens first, so that a new index never lies beside old tokens.
      sys::unlink(file->path().c_str());
      index->commit();
    }
    file->commit();
    if (index) index->forget();
  }

  const TokenFormat format;
  const DType dtype;
  const std::optional<std::int64_t> eot;
  const bool eot_first;
  std::uint64_t header = 0, tokens = 0, documents = 0;
  std::uint64_t document_tokens = 0;  // of the current document
  std::string state;
  std::optional<FileWriter> file;
  std::unique_ptr<DocumentIndexWriter> index;
  bool closed = false;
};

TokenWriter::TokenWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
TokenWriter::TokenWriter(TokenWriter&&) noexcept = default;
TokenWriter& TokenWriter::operator=(TokenWriter&&) noexcept = default;
TokenWriter::~TokenWriter() = default;

TokenWriter TokenWriter::create(const std::string& path, const TokenWriterOptions& options) {
  return TokenWriter(std::make_unique<Impl>(path, options));
}

TokenWriter::Impl& TokenWriter::impl() const {
  if (impl_ && !impl_->closed) return *impl_;
  throw Error(ErrorKind::kClosed, "write", "the writer was closed");
}

void TokenWriter::append(std::span<const std::byte> tokens) { impl().append(tokens); }
void TokenWriter::append(std::span<const std::int64_t> tokens) {
  impl().require_fits(tokens);
  if (tokens.empty()) return;
  impl().begin_document();
  impl().write_values(tokens);
}
void TokenWriter::end_document() { impl().end_document(); }
std::uint64_t TokenWriter::tokens() const { return impl_->tokens; }
std::uint64_t TokenWriter::documents() const { return impl_->documents; }
DType TokenWriter::dtype() const { return impl_->dtype; }
const std::string& TokenWriter::format() const { return impl_->format.name; }
const std::string& TokenWriter::path() const { return impl_->format.path; }
std::string TokenWriter::how() const { return impl_->file->describe(); }
const std::string& TokenWriter::state() const { return impl_->state; }
void TokenWriter::checkpoint(std::string_view state) { impl().checkpoint(state); }

void TokenWriter::close() {
  if (!impl_ || impl_->closed) return;
  impl_->close();
  impl_->closed = true;
}

void TokenWriter::abort() noexcept {
  if (!impl_ || impl_->closed) return;
  impl_->closed = true;
  if (impl_->index) impl_->index->forget();
  impl_->file->discard();
}

}  // namespace evenkeel
