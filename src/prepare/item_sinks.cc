// Writes items to a file or to an object on a server.
#include <type_traits>

#include "prepare/input_files.h"
#include "prepare/items.h"
#include "remote/address.h"
#include "write/options.h"

namespace evenkeel {
namespace {

constexpr std::string_view kDone = "done ";

class ArraySink final : public ItemSink {
 public:
  ArraySink(const std::string& path, const ArrayWriterOptions& options)
      : writer_(ArrayWriter::create(path, options)),
        resumed_(writer_.rows() > 0 || !writer_.state().empty()) {}
  void add(std::span<const std::byte> item) override { writer_.append(item); }
  bool joins() const override { return true; }
  void checkpoint(const std::string& state) override { writer_.checkpoint(state); }
  bool can_checkpoint() const override { return !is_url(writer_.path()); }
  const std::string& state() const override { return writer_.state(); }
  bool resumed() const override { return resumed_; }
  std::string how() const override { return writer_.how(); }
  void close() override { writer_.close(); }
  void abort() noexcept override { writer_.abort(); }

 private:
  ArrayWriter writer_;
  const bool resumed_;
};

class TokenSink final : public ItemSink {
 public:
  TokenSink(const std::string& path, const TokenWriterOptions& options, bool documents)
      : writer_(TokenWriter::create(path, options)),
        documents_(documents),
        resumed_(writer_.tokens() > 0 || !writer_.state().empty()) {}
  void add(std::span<const std::byte> item) override {
    writer_.append(item);
    if (documents_) writer_.end_document();
  }
  bool joins() const override { return !documents_; }
  void checkpoint(const std::string& state) override { writer_.checkpoint(state); }
  bool can_checkpoint() const override { return !is_url(writer_.path()); }
  const std::string& state() const override { return writer_.state(); }
  bool resumed() const override { return resumed_; }
  std::string how() const override { return writer_.how(); }
  void close() override { writer_.close(); }
  void abort() noexcept override { writer_.abort(); }

 private:
  TokenWriter writer_;
  const bool documents_, resumed_;
};

// Calls `use` with the options of the writer.
template <class Use>
void with_writer(const std::string& path, const ItemKind& like, const std::string& format,
                 const WriteOptions& options, Use use) {
  if (like.tokens) {
    TokenWriterOptions made = *like.tokens;
    static_cast<WriteOptions&>(made) = options;
    if (!format.empty()) made.format = format;
    return use(made);
  }
  if (!format.empty() && format != like.array.format) {
    throw Error(ErrorKind::kInvalid, "create", "format \"" + format + "\" is for token files")
        .in(path);
  }
  ArrayWriterOptions made = like.array;
  static_cast<WriteOptions&>(made) = options;
  use(made);
}

}  // namespace

void require_output(const std::string& path, const ItemKind& like, const std::string& format,
                    const WriteOptions& options) {
  with_writer(path, like, format, options, [&](const auto& made) { require_writable(path, made); });
}

std::unique_ptr<ItemSink> create_items(const std::string& path, const ItemKind& like,
                                       const std::string& format, const WriteOptions& options,
                                       bool documents) {
  std::unique_ptr<ItemSink> sink;
  with_writer(path, like, format, options, [&]<class Made>(const Made& made) {
    if constexpr (std::is_same_v<Made, TokenWriterOptions>) {
      sink = std::make_unique<TokenSink>(path, made, documents);
    } else {
      sink = std::make_unique<ArraySink>(path, made);
    }
  });
  return sink;
}

std::string done_state(const std::string& kind, const WorkReport& report) {
  return kind + std::string(kDone) + std::to_string(report.items) + " " +
         std::to_string(report.bytes) + " " + std::to_string(report.duplicates);
}

bool is_done(const ItemSink& sink, const std::string& kind) {
  return state_numbers(sink.state(), kind, kDone, 3).has_value();
}

bool close_if_done(ItemSink& sink, const std::string& kind, WorkReport& report) {
  const auto done = state_numbers(sink.state(), kind, kDone, 3);
  if (!done) return false;
  report.resumed = true;
  report.items = (*done)[0], report.bytes = (*done)[1], report.duplicates = (*done)[2];
  report.how = sink.how();
  sink.close();
  return true;
}

}  // namespace evenkeel
