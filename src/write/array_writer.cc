#include <algorithm>

#include "base/checked.h"
#include "evenkeel/bytes.h"
#include "evenkeel/write.h"
#include "write/file_writer.h"
#include "write/npy_header.h"
#include "write/options.h"

namespace evenkeel {
namespace {

Error bad_array(const std::string& path, const std::string& problem) {
  return Error(ErrorKind::kInvalid, "create", problem).in(path);
}

std::string array_format(const std::string& path, const std::string& format) {
  if (format.empty()) return path.ends_with(".npy") ? "npy" : "raw";
  if (format == "npy" || format == "raw") return format;
  throw bad_array(path, "there is no format \"" + format + "\"")
      .hint("\"npy\", or \"raw\" for bare numbers");
}

}  // namespace

struct ArrayWriter::Impl {
  Impl(const std::string& path, const ArrayWriterOptions& options)
      : dtype(options.dtype),
        npy(array_format(path, options.format) == "npy"),
        descr(options.descr.empty() ? npy_descr_text(options.dtype) : options.descr),
        row_bytes(bytes_of_row(path, options)) {
    for (std::size_t i = 1; i < options.shape.size(); ++i) {
      row_shape.push_back(static_cast<std::uint64_t>(options.shape[i]));
    }
    if (options.shape[0] >= 0) fixed_rows = static_cast<std::uint64_t>(options.shape[0]);
    if (npy) header = npy_header_bytes(descr, shape()).size();
    FileWriterOptions own = file_options(options);
    if (fixed_rows) own.expected_bytes = header + *fixed_rows * row_bytes;
    file.emplace(path, own);
    const std::string kind = kind_text();
    if (const auto& found = file->checkpoint()) {
      require_kind(path, *found, kind);
      state = found->state;
      rows = (found->size - header) / row_bytes;
    } else if (npy) {
      const std::string bytes = npy_header_bytes(descr, shape());
      file->append(std::as_bytes(std::span(bytes)));
    }
    if (fixed_rows) file->expect_size(header + *fixed_rows * row_bytes);
  }

  static std::uint64_t bytes_of_row(const std::string& path, const ArrayWriterOptions& options) {
    if (options.shape.empty()) {
      throw bad_array(path, "the array must have at least one axis")
          .hint("for one number, use shape (1,)");
    }
    std::uint64_t bytes = options.dtype.size;
    for (std::size_t i = 1; i < options.shape.size(); ++i) {
      const std::int64_t length = options.shape[i];
      const auto more =
          length > 0 ? checked_mul(bytes, static_cast<std::uint64_t>(length)) : std::nullopt;
      if (!more || *more > std::uint64_t{1} << 62) {
        throw bad_array(path,
                        "axis " + std::to_string(i) + " has a length of " + std::to_string(length))
            .hint("only the first axis may grow; the others are 1 or more");
      }
      bytes = *more;
    }
    if (options.shape[0] < -1) {
      throw bad_array(path, "the first axis has a length of " + std::to_string(options.shape[0]))
          .hint("-1 (None in Python) lets it grow");
    }
    if (options.shape[0] > 0 &&
        (!checked_mul(bytes, static_cast<std::uint64_t>(options.shape[0])) ||
         bytes * static_cast<std::uint64_t>(options.shape[0]) > std::uint64_t{1} << 62)) {
      throw bad_array(path, with_commas(static_cast<std::uint64_t>(options.shape[0])) +
                                " rows of " + with_commas(bytes) + " bytes are too many");
    }
    return bytes;
  }

  std::vector<std::uint64_t> shape() const {
    std::vector<std::uint64_t> all{fixed_rows.value_or(rows)};
    all.insert(all.end(), row_shape.begin(), row_shape.end());
    return all;
  }

  std::string kind_text() const {
    std::string text = std::string(npy ? "npy " : "raw ") + descr + " " + std::to_string(row_bytes);
    return text + (fixed_rows ? " rows " + std::to_string(*fixed_rows) : " grows");
  }

  std::uint64_t whole_rows(std::span<const std::byte> bytes) const {
    if (bytes.size() % row_bytes == 0) return bytes.size() / row_bytes;
    throw Error(ErrorKind::kInvalid, "write",
                with_commas(bytes.size()) + " bytes are not a whole number of rows of " +
                    with_commas(row_bytes) + " bytes")
        .in(file->path());
  }

  void assign(std::uint64_t first, std::span<const std::byte> bytes) {
    const std::uint64_t count = whole_rows(bytes);
    const std::uint64_t most = fixed_rows.value_or(std::uint64_t{1} << 62);
    if (first > most || count > most - first || (!fixed_rows && first > rows)) {
      throw Error(ErrorKind::kIndex, "write",
                  "rows " + with_commas(first) + " to " + with_commas(first + count) +
                      " are outside the array, which has " +
                      with_commas(fixed_rows.value_or(rows)) + " rows" +
                      (fixed_rows ? "" : " so far"))
          .in(file->path())
          .hint(fixed_rows ? "the shape was given when the file was created"
                           : "append rows first, or give the number of rows in `shape`");
    }
    file->write_at(header + first * row_bytes, bytes);
    rows = std::max(rows, first + count);
  }

  void close() {
    if (npy) {
      const std::string bytes = npy_header_bytes(descr, shape());
      file->write_at(0, std::as_bytes(std::span(bytes)));
    }
    if (fixed_rows && rows < *fixed_rows) {
      // Extend the file to the end of its last row, which was not written.
      file->extend(header + *fixed_rows * row_bytes);
    }
    file->complete();
    file->commit();
  }

  const DType dtype;
  const bool npy;
  const std::string descr;
  const std::uint64_t row_bytes;
  std::vector<std::uint64_t> row_shape;
  std::optional<std::uint64_t> fixed_rows;
  std::uint64_t header = 0, rows = 0;
  std::string state;
  std::optional<FileWriter> file;
  bool closed = false;
};

void require_writable(const std::string& path, const ArrayWriterOptions& options) {
  array_format(path, options.format);
  ArrayWriter::Impl::bytes_of_row(path, options);
  FileWriter::require_writable(path, options);
}

ArrayWriter::ArrayWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ArrayWriter::ArrayWriter(ArrayWriter&&) noexcept = default;
ArrayWriter& ArrayWriter::operator=(ArrayWriter&&) noexcept = default;
ArrayWriter::~ArrayWriter() = default;

ArrayWriter ArrayWriter::create(const std::string& path, const ArrayWriterOptions& options) {
  return ArrayWriter(std::make_unique<Impl>(path, options));
}

ArrayWriter::Impl& ArrayWriter::impl() const {
  if (impl_ && !impl_->closed) return *impl_;
  throw Error(ErrorKind::kClosed, "write", "the writer was closed");
}

void ArrayWriter::require(DType wanted) const {
  if (wanted == impl().dtype) return;
  throw Error(ErrorKind::kInvalid, "write",
              "the array holds " + impl().dtype.name() + ", not " + wanted.name())
      .in(path());
}

void ArrayWriter::append(std::span<const std::byte> rows) { impl().assign(impl().rows, rows); }
void ArrayWriter::assign(std::uint64_t first, std::span<const std::byte> rows) {
  impl().assign(first, rows);
}
std::uint64_t ArrayWriter::rows() const { return impl_->rows; }
std::uint64_t ArrayWriter::row_bytes() const { return impl_->row_bytes; }
std::vector<std::uint64_t> ArrayWriter::shape() const { return impl_->shape(); }
DType ArrayWriter::dtype() const { return impl_->dtype; }
const std::string& ArrayWriter::path() const { return impl_->file->path(); }
std::string ArrayWriter::how() const { return impl_->file->describe(); }
const std::string& ArrayWriter::state() const { return impl_->state; }

void ArrayWriter::checkpoint(std::string_view state) {
  Impl& writer = impl();
  writer.file->save({0, writer.kind_text(), "", std::string(state)});
}

void ArrayWriter::close() {
  if (!impl_ || impl_->closed) return;
  impl_->close();
  impl_->closed = true;
}

void ArrayWriter::abort() noexcept {
  if (!impl_ || impl_->closed) return;
  impl_->closed = true;
  impl_->file->discard();
}

}  // namespace evenkeel
