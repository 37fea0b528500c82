#include "documents/stored_index.h"

#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <utility>

#include "array/chunks.h"
#include "array/impl.h"
#include "base/fd.h"
#include "base/memory.h"
#include "documents/find_tokens.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"
#include "format/part.h"
#include "format/source.h"
#include "format/token_part.h"
#include "remote/address.h"

namespace evenkeel {
namespace {

constexpr std::string_view kStoredMagic("EKDOCIDX", 8);
constexpr std::uint32_t kStoredVersion = 1;

std::uint64_t hash_bytes(std::string_view bytes, std::uint64_t hash = 0xcbf29ce484222325) {
  for (const char c : bytes) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

// A hash of 16 samples spread over the file. It detects a file that was rewritten with the same
// size and mtime.
std::uint64_t hash_samples(const Source& source) {
  constexpr std::uint64_t kPieces = 16, kPiece = 4096;
  const std::uint64_t size = source.identity.size, last = size > kPiece ? size - kPiece : 0;
  std::uint64_t hash = hash_bytes({});
  for (std::uint64_t i = 0; i < kPieces; ++i) {
    const std::uint64_t at = last / (kPieces - 1) * i;
    hash = hash_bytes(source.read(at, kPiece), hash);
  }
  return hash;
}

// What the header of an index must contain to belong to a file.
struct Belongs {
  std::uint64_t tokens, data_offset, size;
  std::int64_t mtime_ns;
  std::uint64_t samples;
  Separator separator;

  Belongs(const TokenFileInfo& file, const Source& source, const Separator& given)
      : tokens(file.tokens),
        data_offset(file.data_offset),
        size(source.identity.size),
        mtime_ns(source.identity.mtime_ns),
        samples(hash_samples(source)),
        separator(given) {}
};

class HeaderWriter {
 public:
  template <class T>
  void add(T number) {
    for (std::size_t i = 0; i < sizeof(T); ++i) {
      bytes_[at_++] = static_cast<char>(static_cast<std::uint64_t>(number) >> (8 * i));
    }
  }
  void add(std::string_view text) {
    std::memcpy(bytes_.data() + at_, text.data(), text.size());
    at_ += text.size();
  }
  std::string_view so_far() const { return {bytes_.data(), at_}; }
  std::string_view whole() const { return {bytes_.data(), bytes_.size()}; }

 private:
  std::array<char, kStoredIndexHeader> bytes_{};
  std::size_t at_ = 0;
};

std::string header_of(const Belongs& file, std::uint64_t documents, std::uint64_t first) {
  HeaderWriter header;
  header.add(kStoredMagic);
  header.add(kStoredVersion);
  header.add(std::uint32_t{file.separator.begins ? 1U : 2U});
  header.add(file.separator.token);
  header.add(documents);
  header.add(first);
  header.add(file.tokens);
  header.add(file.size);
  header.add(file.mtime_ns);
  header.add(file.samples);
  header.add(file.data_offset);
  header.add(hash_bytes(header.so_far()));
  return std::string(header.whole());
}

// Empty if there is no index, or if it does not belong to the file.
std::optional<StoredIndex> read_stored(const std::string& path, const Belongs& file) {
  struct stat status;
  if (sys::lstat(path.c_str(), &status) != 0) return std::nullopt;
  const Source index = open_even_empty(path);
  const std::string head = index.read(0, kStoredIndexHeader);
  if (head.size() < kStoredIndexHeader || !head.starts_with(kStoredMagic)) return std::nullopt;
  const auto documents = load_number<std::uint64_t>(head.data() + 24);
  const auto first = load_number<std::uint64_t>(head.data() + 32);
  if (documents == 0 || documents > file.tokens ||
      index.identity.size != kStoredIndexHeader + 8 * documents ||
      head != header_of(file, documents, first)) {
    return std::nullopt;
  }
  return StoredIndex{index, documents, first};
}

Error cannot_write(const std::string& path, int code) {
  return Error::system("documents", code, "cannot write the index of documents")
      .in(path)
      .hint("choose a writable folder with documents_index");
}

// The file that becomes the index. It is locked, so that other processes that need the same index
// wait. A crash leaves it behind, and the next process starts over.
class Draft {
 public:
  Draft(std::string path, const Budget& budget)
      : path_(std::move(path)),
        name_(path_ + ".part"),
        buffer_(budget, 256_KiB, "writing an index") {
    for (;;) {
      fd_ = Fd(::open(name_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666));
      if (!fd_) throw cannot_write(name_, errno);
      while (::flock(fd_.get(), LOCK_EX) != 0) {
        const int code = errno;
        if (code == EINTR) continue;
        ::unlink(name_.c_str());
        throw cannot_write(name_, code);
      }
      // The process that had the lock has renamed the file if it was complete. Then open a new one.
      struct stat mine, named;
      if (::fstat(fd_.get(), &mine) == 0 && ::lstat(name_.c_str(), &named) == 0 &&
          mine.st_ino == named.st_ino && mine.st_dev == named.st_dev) {
        return;
      }
    }
  }
  ~Draft() {
    if (!kept_) ::unlink(name_.c_str());
  }
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;

  void begin() {
    if (::ftruncate(fd_.get(), 0) != 0) throw cannot_write(name_, errno);
    at_ = kStoredIndexHeader;
  }
  void add(std::uint64_t number) {
    for (std::size_t i = 0; i < 8; ++i) {
      buffer_.data()[used_++] = static_cast<std::byte>(number >> (8 * i));
    }
    if (used_ == buffer_.size()) flush();
  }
  void keep(const std::string& header) {
    flush();
    write(header.data(), header.size(), 0);
    if (::fsync(fd_.get()) != 0) throw cannot_write(name_, errno);
    (void)sys::fadvise(fd_.get(), 0, 0, POSIX_FADV_DONTNEED);
    if (::rename(name_.c_str(), path_.c_str()) != 0) throw cannot_write(path_, errno);
    kept_ = true;
  }

 private:
  void flush() {
    write(reinterpret_cast<const char*>(buffer_.data()), used_, at_);
    at_ += used_;
    used_ = 0;
  }
  void write(const char* data, std::size_t size, std::uint64_t at) {
    while (size > 0) {
      const ssize_t done = ::pwrite(fd_.get(), data, size, static_cast<off_t>(at));
      if (done < 0 && errno == EINTR) continue;
      if (done <= 0) throw cannot_write(name_, done < 0 ? errno : ENOSPC);
      data += done;
      size -= static_cast<std::size_t>(done);
      at += static_cast<std::uint64_t>(done);
    }
  }

  const std::string path_, name_;
  PageBuffer buffer_;
  Fd fd_;
  std::uint64_t at_ = kStoredIndexHeader, used_ = 0;
  bool kept_ = false;
};

// The whole file as an array of tokens.
std::shared_ptr<Array::Impl> whole_file(const TokenFileInfo& file, const Source& source,
                                        const Layout& stream, const Budget& budget) {
  Layout layout;
  layout.format = "raw";
  layout.dtype = stream.dtype;
  layout.swapped = stream.swapped;
  layout.row_bytes = stream.dtype.size;
  layout.disk_cache = stream.disk_cache;
  append(layout, token_part("raw", source, stream.dtype, file.data_offset, file.tokens));
  layout.shape = {layout.rows};
  return std::make_shared<Array::Impl>(std::move(layout),
                                       ArrayOptions{.budget = budget, .cache = 0});
}

struct Found {
  std::uint64_t documents = 0, first = 0;
  std::uint64_t separators = 0;
};

Found scan(Array::Impl& array, std::shared_ptr<Array::Impl> shared, const Separator& separator,
           Draft& draft) {
  const DType dtype = array.layout.dtype;
  const std::uint64_t tokens = array.layout.rows;
  const std::uint64_t bytes = std::clamp<std::uint64_t>(array.budget.limit() / 64, 64_KiB, 4_MiB);
  Found found;
  const auto add = [&](std::uint64_t start) {
    if (found.documents++ == 0) found.first = start;
    draft.add(start);
  };
  if (!separator.begins) add(0);
  Chunks::Impl chunks(std::move(shared), bytes / dtype.size, sequential());
  std::uint64_t before = 0;
  for (Chunk chunk; chunks.advance(chunk); before += chunk.size()) {
    find_tokens(dtype, chunk.bytes().data(), chunk.size(), separator.token, [&](std::uint64_t i) {
      ++found.separators;
      const std::uint64_t start = before + i + (separator.begins ? 0 : 1);
      if (start < tokens) add(start);
    });
  }
  return found;
}

}  // namespace

void require_possible(const Separator& separator, DType dtype, const std::string& path) {
  if (can_hold(dtype, separator.token)) return;
  const std::uint64_t size = separator.token < 0 ? 0 - static_cast<std::uint64_t>(separator.token)
                                                 : static_cast<std::uint64_t>(separator.token);
  throw Error(ErrorKind::kInvalid, "documents",
              "token " + std::string(separator.token < 0 ? "-" : "") + with_commas(size) +
                  " cannot be stored as " + dtype.name())
      .in(path)
      .hint(std::string("give the token that documents of these files ") +
            (separator.begins ? "begin with (bos)" : "end with (eos)"));
}

std::string stored_index_path(const std::string& tokens_path, const Separator& separator,
                              const std::string& folder) {
  const std::string suffix = (separator.begins ? ".bos" : ".eos") +
                             std::to_string(separator.token) + std::string(kStoredIndexSuffix);
  if (folder.empty() && is_url(tokens_path)) {
    throw Error(ErrorKind::kInvalid, "documents",
                "the index of documents cannot be written beside an object on a server")
        .in(tokens_path)
        .hint(
            "choose a folder for it (Python: documents_index, tool: --documents-index), or store "
            "the first tokens of documents beside the object, as NAME.doc.npy");
  }
  if (folder.empty()) return tokens_path + suffix;
  // Files with the same name in different folders have different indexes.
  std::string name, whole;
  if (is_url(tokens_path)) {
    Address address = parse_address(tokens_path);
    address.query = without_signature(address.query);
    name = object_name(tokens_path);
    whole = address.text();
  } else {
    const auto path = std::filesystem::absolute(tokens_path).lexically_normal();
    name = path.filename().string();
    whole = path.string();
  }
  std::array<char, 17> hash;
  std::snprintf(hash.data(), hash.size(), "%016llx",
                static_cast<unsigned long long>(hash_bytes(whole)));
  return (std::filesystem::path(folder) / (name + "." + hash.data() + suffix)).string();
}

StoredIndex find_stored_index(const TokenFileInfo& file, const Layout& stream,
                              const Separator& separator, const std::string& folder,
                              const Budget& budget) {
  require_possible(separator, stream.dtype, file.path);
  const Source source = open_source(file.path);
  const Belongs belongs(file, source, separator);
  const std::string path = stored_index_path(file.path, separator, folder);
  if (const auto index = read_stored(path, belongs)) return *index;
  if (!folder.empty()) {
    std::error_code failure;
    std::filesystem::create_directories(folder, failure);
    if (failure) throw cannot_write(folder, failure.value());
  }
  Draft draft(path, budget);
  if (const auto index = read_stored(path, belongs)) return *index;  // another process made it
  draft.begin();
  const auto array = whole_file(file, source, stream, budget);
  const Found found = scan(*array, array, separator, draft);
  const FileIdentity now = open_source(file.path).identity;
  if (now.size != belongs.size || now.mtime_ns != belongs.mtime_ns) {
    throw Error(ErrorKind::kFormat, "documents",
                "the file changed while it was scanned for documents")
        .in(file.path)
        .hint("wait until it is written, then try again");
  }
  if (found.documents == 0 ||
      (found.separators == 0 && !separator.begins && file.tokens > 1'000'000)) {
    throw Error(ErrorKind::kFormat, "documents",
                "token " + std::to_string(separator.token) + ", at which documents " +
                    (separator.begins ? "begin" : "end") + ", is not among the " +
                    with_commas(file.tokens) + " tokens")
        .in(file.path)
        .hint("give the right bos or eos; GPT-2's is 50256, Llama-3's 128000 (bos)");
  }
  draft.keep(header_of(belongs, found.documents, found.first));
  if (const auto index = read_stored(path, belongs)) return *index;
  throw Error(ErrorKind::kFormat, "documents", "the index was replaced just after it was written")
      .in(path)
      .hint("another process indexes another version of the file; try again");
}

}  // namespace evenkeel
