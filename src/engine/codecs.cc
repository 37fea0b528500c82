#include "engine/codecs.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "evenkeel/bytes.h"
#include "evenkeel/error.h"

namespace evenkeel {
namespace {

Error wrong_size(const std::string& name, const std::string& found, std::uint64_t expected) {
  return Error(ErrorKind::kFormat, "read",
               "the chunk decodes to " + found + " bytes; its shape needs " + with_commas(expected))
      .in(name);
}

Error damaged(const std::string& name, const std::string& codec, const std::string& why) {
  return Error(ErrorKind::kFormat, "read", "the chunk is damaged: " + codec + " says: " + why)
      .in(name)
      .hint("the download or copy may be incomplete");
}

// The first library that has `function`. It is never unloaded.
class Library {
 public:
  Library(const char* system, const std::vector<std::string>& others, const char* function) {
    library_ = ::dlopen(system, RTLD_LAZY | RTLD_LOCAL);
    for (const std::string& path : others) {
      if (library_ && ::dlsym(library_, function)) return;
      library_ = ::dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
    }
    if (library_ && !::dlsym(library_, function)) library_ = nullptr;
  }
  explicit operator bool() const { return library_ != nullptr; }
  template <class Function>
  bool find(const char* name, Function& function) const {
    function = reinterpret_cast<Function>(::dlsym(library_, name));
    return function != nullptr;
  }

 private:
  void* library_ = nullptr;
};

Error not_installed(const std::string& codec, const std::string& package, bool in_numcodecs) {
  return Error(ErrorKind::kInvalid, "open",
               "chunks compressed with " + codec + " need its library, which was not found")
      .hint((in_numcodecs ? "pip install numcodecs, or install the system's own (Debian: "
                          : "install the system's zlib (Debian: ") +
            ("apt-get install " + package) + ")");
}

struct Zstd {
  void* (*createDCtx)() = nullptr;
  std::size_t (*freeDCtx)(void*) = nullptr;
  std::size_t (*decompressDCtx)(void*, void*, std::size_t, const void*, std::size_t) = nullptr;
  unsigned (*isError)(std::size_t) = nullptr;
  const char* (*getErrorName)(std::size_t) = nullptr;
  unsigned long long (*getFrameContentSize)(const void*, std::size_t) = nullptr;

  bool load(const Library& from) {
    return from && from.find("ZSTD_createDCtx", createDCtx) &&
           from.find("ZSTD_freeDCtx", freeDCtx) &&
           from.find("ZSTD_decompressDCtx", decompressDCtx) && from.find("ZSTD_isError", isError) &&
           from.find("ZSTD_getErrorName", getErrorName) &&
           from.find("ZSTD_getFrameContentSize", getFrameContentSize);
  }
  static Library library(const std::vector<std::string>& others) {
    return {"libzstd.so.1", others, "ZSTD_decompressDCtx"};
  }
  static Error missing() { return not_installed("zstd", "libzstd1", true); }
};

struct Blosc {
  int (*decompress)(const void*, void*, std::size_t, int) = nullptr;

  bool load(const Library& from) { return from && from.find("blosc_decompress_ctx", decompress); }
  static Library library(const std::vector<std::string>& others) {
    return {"libblosc.so.1", others, "blosc_decompress_ctx"};
  }
  static Error missing() { return not_installed("blosc", "libblosc1", true); }
};

// z_stream as in zlib.h; its layout is part of the library's ABI.
struct ZlibStream {
  const unsigned char* next_in;
  unsigned avail_in;
  unsigned long total_in;
  unsigned char* next_out;
  unsigned avail_out;
  unsigned long total_out;
  const char* msg;
  void* state;
  void* (*zalloc)(void*, unsigned, unsigned);
  void (*zfree)(void*, void*);
  void* opaque;
  int data_type;
  unsigned long adler, reserved;
};

struct Zlib {
  int (*inflateInit)(ZlibStream*, int, const char*, int) = nullptr;
  int (*inflate)(ZlibStream*, int) = nullptr;
  int (*inflateReset)(ZlibStream*) = nullptr;
  int (*inflateEnd)(ZlibStream*) = nullptr;

  bool load(const Library& from) {
    return from && from.find("inflateInit2_", inflateInit) && from.find("inflate", inflate) &&
           from.find("inflateReset", inflateReset) && from.find("inflateEnd", inflateEnd);
  }
  static Library library(const std::vector<std::string>& others) {
    return {"libz.so.1", others, "inflateInit2_"};
  }
  static Error missing() { return not_installed("gzip or zlib", "zlib1g", false); }
};

// Loads the functions once; if the library was missing, the next call looks for it again. There is
// no lock, because a child of fork could inherit it locked by a thread that the child does not
// have.
template <class Functions>
const Functions& loaded(const std::vector<std::string>& others) {
  static std::atomic<const Functions*> found = nullptr;  // never freed
  const Functions* known = found.load(std::memory_order_acquire);
  if (known) return *known;
  auto functions = std::make_unique<Functions>();
  if (!functions->load(Functions::library(others))) throw Functions::missing();
  if (found.compare_exchange_strong(known, functions.get())) known = functions.release();
  return *known;  // another thread may have been first
}

class ZstdDecoder final : public Decoder {
 public:
  explicit ZstdDecoder(const Zstd& zstd) : zstd_(zstd), context_(zstd.createDCtx()) {
    if (!context_) throw Error::system("open", ENOMEM, "no memory for zstd");
  }
  ~ZstdDecoder() override { zstd_.freeDCtx(context_); }
  ZstdDecoder(const ZstdDecoder&) = delete;
  ZstdDecoder& operator=(const ZstdDecoder&) = delete;

  void decode(std::span<const std::byte> stored, std::span<std::byte> out,
              const std::string& name) override {
    constexpr unsigned long long kUnknown = -1, kError = -2;
    const unsigned long long said = zstd_.getFrameContentSize(stored.data(), stored.size());
    if (said != kUnknown && said != kError && said > out.size()) {
      throw wrong_size(name, with_commas(said), out.size());
    }
    const std::size_t got =
        zstd_.decompressDCtx(context_, out.data(), out.size(), stored.data(), stored.size());
    if (zstd_.isError(got)) throw damaged(name, "zstd", zstd_.getErrorName(got));
    if (got != out.size()) throw wrong_size(name, with_commas(got), out.size());
  }

 private:
  const Zstd& zstd_;
  void* const context_;
};

// blosc allocates three blocks and a little more.
constexpr std::uint64_t blosc_memory(std::uint64_t block) { return 3 * block + (16 << 10); }
constexpr std::uint64_t kUsualBloscBlock = 512 << 10;

class BloscDecoder final : public Decoder {
 public:
  BloscDecoder(const Blosc& blosc, const Budget& budget) : blosc_(blosc), budget_(budget) {}

  void decode(std::span<const std::byte> stored, std::span<std::byte> out,
              const std::string& name) override {
    // The header: version, format, flags and type size (4 bytes), then the decoded size, the block
    // size and the compressed size.
    constexpr std::size_t kHeader = 16;
    std::array<std::uint32_t, 3> sizes{};
    if (stored.size() < kHeader) throw damaged(name, "blosc", "it is too short for a header");
    std::memcpy(sizes.data(), stored.data() + 4, sizeof(sizes));
    const auto [decoded, block, compressed] = sizes;
    if (decoded != out.size()) throw wrong_size(name, with_commas(decoded), out.size());
    if (compressed != stored.size()) {
      throw damaged(name, "blosc",
                    "its header says " + with_commas(compressed) + " bytes; there are " +
                        with_commas(stored.size()));
    }
    if (block > decoded) throw damaged(name, "blosc", "its blocks are larger than the chunk");
    Reservation room;
    if (block > kUsualBloscBlock) {
      room = budget_.reserve(blosc_memory(block - kUsualBloscBlock), "large blosc blocks");
    }
    const int got = blosc_.decompress(stored.data(), out.data(), out.size(), 1);
    if (got < 0 || static_cast<std::size_t>(got) != out.size()) {
      throw damaged(name, "blosc", "error " + std::to_string(got));
    }
  }

 private:
  const Blosc& blosc_;
  const Budget budget_;
};

class ZlibDecoder final : public Decoder {
 public:
  explicit ZlibDecoder(const Zlib& zlib) : zlib_(zlib) {
    constexpr int kGzipOrZlib = 15 + 32;
    if (zlib_.inflateInit(&stream_, kGzipOrZlib, "1.2.11", sizeof(stream_)) != 0) {
      throw Error::system("open", ENOMEM, "no memory for zlib");
    }
  }
  ~ZlibDecoder() override { zlib_.inflateEnd(&stream_); }
  ZlibDecoder(const ZlibDecoder&) = delete;
  ZlibDecoder& operator=(const ZlibDecoder&) = delete;

  void decode(std::span<const std::byte> stored, std::span<std::byte> out,
              const std::string& name) override {
    constexpr int kNoFlush = 0, kOk = 0, kEnd = 1, kBufferError = -5;
    constexpr std::size_t kMost = std::size_t{1} << 30;  // bytes for one call
    zlib_.inflateReset(&stream_);
    std::size_t in = 0, done = 0;
    std::byte beyond{};  // receives a byte if the data decodes to more than expected
    while (true) {
      const std::size_t give = std::min(kMost, stored.size() - in);
      const std::size_t room = std::min(kMost, out.size() - done);
      stream_.next_in = reinterpret_cast<const unsigned char*>(stored.data() + in);
      stream_.avail_in = static_cast<unsigned>(give);
      stream_.next_out = reinterpret_cast<unsigned char*>(room > 0 ? out.data() + done : &beyond);
      stream_.avail_out = room > 0 ? static_cast<unsigned>(room) : 1;
      const int state = zlib_.inflate(&stream_, kNoFlush);
      in += give - stream_.avail_in;
      if (room > 0) {
        done += room - stream_.avail_out;
      } else if (stream_.avail_out == 0) {
        throw wrong_size(name, "more than " + with_commas(out.size()), out.size());
      }
      if (state == kEnd) break;
      if (state == kBufferError || (state == kOk && give == 0)) {
        throw damaged(name, "zlib", "it ends after " + with_commas(done) + " bytes");
      }
      if (state != kOk) {
        throw damaged(name, "zlib", stream_.msg ? stream_.msg : std::to_string(state));
      }
    }
    if (done != out.size()) throw wrong_size(name, with_commas(done), out.size());
  }

 private:
  const Zlib& zlib_;
  ZlibStream stream_{};
};

class PlainDecoder final : public Decoder {
 public:
  void decode(std::span<const std::byte> stored, std::span<std::byte> out,
              const std::string& name) override {
    if (stored.size() != out.size()) {
      throw wrong_size(name, with_commas(stored.size()), out.size());
    }
    std::memcpy(out.data(), stored.data(), out.size());
  }
};

// Eight tables, to process eight bytes at a time.
using CrcTables = std::array<std::array<std::uint32_t, 256>, 8>;
constexpr CrcTables make_crc_tables() {
  CrcTables tables{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0x82f63b78 : 0);
    tables[0][i] = crc;
  }
  for (std::size_t t = 1; t < tables.size(); ++t) {
    for (std::size_t i = 0; i < 256; ++i) {
      tables[t][i] = (tables[t - 1][i] >> 8) ^ tables[0][tables[t - 1][i] & 255];
    }
  }
  return tables;
}
constexpr CrcTables kCrc = make_crc_tables();

}  // namespace

std::uint64_t Decoder::memory(Compression compression, std::uint64_t chunk_bytes) {
  constexpr std::uint64_t kContext = 192 << 10;
  return compression != Compression::kBlosc ? kContext
                                            : blosc_memory(std::min(chunk_bytes, kUsualBloscBlock));
}

std::unique_ptr<Decoder> make_decoder(Compression compression,
                                      const std::vector<std::string>& libraries,
                                      const Budget& budget) {
  switch (compression) {
    case Compression::kZstd:
      return std::make_unique<ZstdDecoder>(loaded<Zstd>(libraries));
    case Compression::kBlosc:
      return std::make_unique<BloscDecoder>(loaded<Blosc>(libraries), budget);
    case Compression::kZlib:
      return std::make_unique<ZlibDecoder>(loaded<Zlib>(libraries));
    case Compression::kNone:
      break;
  }
  return std::make_unique<PlainDecoder>();
}

std::uint32_t crc32c(std::span<const std::byte> bytes) {
  std::uint32_t crc = ~std::uint32_t{0};
  std::size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    std::uint64_t eight;
    std::memcpy(&eight, bytes.data() + i, 8);  // little-endian only, like all of Evenkeel
    eight ^= crc;
    crc = 0;
    for (std::size_t t = 0; t < 8; ++t) crc ^= kCrc[7 - t][(eight >> (8 * t)) & 255];
  }
  for (; i < bytes.size(); ++i) {
    crc = (crc >> 8) ^ kCrc[0][(crc ^ static_cast<std::uint32_t>(bytes[i])) & 255];
  }
  return ~crc;
}

}  // namespace evenkeel
