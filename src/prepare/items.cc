#include "prepare/items.h"

#include <algorithm>

#include "array/internal.h"
#include "base/checked.h"
#include "documents/document_index.h"
#include "evenkeel/bytes.h"
#include "format/layout.h"
#include "format/token_layout.h"
#include "prepare/byte_reader.h"
#include "prepare/input_files.h"
#include "remote/address.h"

namespace evenkeel {
namespace {

// Options for an array that is read within `memory` bytes. With the whole budget, data that fits
// would be mapped.
ArrayOptions reading_options(std::uint64_t memory) {
  ArrayOptions options;
  options.budget = Budget(memory);
  options.cache = 0;
  return options;
}

class RowSource final : public ItemSource {
 public:
  RowSource(Array array, std::uint64_t item_bytes, const Budget& budget, std::uint64_t memory)
      : share_(budget.reserve(memory, "buffers to read ahead")),
        item_bytes_(item_bytes),
        reader_(std::move(array), memory / 8, budget) {}
  std::optional<std::span<const std::byte>> next() override {
    const std::uint64_t left = reader_.size() - reader_.offset();
    if (left == 0) return std::nullopt;
    ++item_;
    return reader_.take(std::min(item_bytes_, left));
  }
  ItemPosition position() const override { return {item_, reader_.offset()}; }
  void seek(const ItemPosition& position) override {
    item_ = position.item;
    reader_.seek(position.offset);
  }
  void seek_item(std::uint64_t item) override {
    seek({item, std::min(item * item_bytes_, reader_.size())});
  }
  std::uint64_t bytes() const override { return reader_.size(); }
  std::uint64_t estimated_items() const override { return divide_up(bytes(), item_bytes_); }
  std::uint64_t item_bytes() const override { return bytes() % item_bytes_ == 0 ? item_bytes_ : 0; }

 private:
  const Reservation share_;
  const std::uint64_t item_bytes_;
  ByteReader reader_;
  std::uint64_t item_ = 0;
};

class LineSource final : public ItemSource {
 public:
  LineSource(std::vector<std::string> paths, const Budget& budget, std::uint64_t memory)
      : share_(budget.reserve(memory, "buffers to read ahead")), budget_(budget), memory_(memory) {
    for (std::string& path : paths) {
      const FileIdentity identity = identify_file(path);
      if (identity.size == 0) continue;
      texts_.push_back({std::move(path), identity, bytes_ += identity.size});
    }
    // Estimate the length of lines from the first ones.
    std::uint64_t lines = 0, length = 0;
    while (length < 256_KiB && lines < 100'000) {
      const auto line = next();
      if (!line) break;
      length += line->size();
      ++lines;
    }
    line_bytes_ = lines == 0 ? 1 : std::max<std::uint64_t>(1, length / lines);
    seek({});
  }
  std::optional<std::span<const std::byte>> next() override {
    for (;;) {
      if (!reader_ || reader_->offset() == reader_->size()) {
        if (file_ == texts_.size()) return std::nullopt;
        open_file(file_++, 0);
      }
      auto line = reader_->take_line();
      if (line.empty()) continue;
      ++item_;
      if (line.back() == std::byte{'\n'}) return line;
      if (line.size() >= last_.capacity()) {
        last_ = {};
        last_share_.release();
        last_share_ = budget_.reserve(line.size() + 1, "a line without a newline");
        last_.reserve(line.size() + 1);
      }
      last_.assign(line.begin(), line.end());
      last_.push_back(std::byte{'\n'});
      return last_;
    }
  }
  ItemPosition position() const override {
    if (file_ == 0) return {item_, 0};
    return {item_, begin_of(file_ - 1) + reader_->offset()};
  }
  void seek(const ItemPosition& position) override {
    item_ = position.item;
    file_ = 0;
    reader_.reset();
    while (file_ < texts_.size() && texts_[file_].end <= position.offset) ++file_;
    if (file_ == texts_.size()) {
      if (file_ > 0) open_file(file_ - 1, position.offset - begin_of(file_ - 1));
      return;
    }
    if (position.offset > 0) {
      open_file(file_, position.offset - begin_of(file_));
      ++file_;
    }
  }
  std::uint64_t bytes() const override { return bytes_; }
  std::uint64_t estimated_items() const override { return bytes_ / line_bytes_ + 1; }
  std::uint64_t item_bytes() const override { return 0; }

 private:
  // A file is opened several times, and must not change in between.
  struct Text {
    std::string path;
    FileIdentity identity;
    std::uint64_t end;  // of its bytes, counted from the beginning of the first file
  };

  std::uint64_t begin_of(std::size_t file) const { return file == 0 ? 0 : texts_[file - 1].end; }
  void open_file(std::size_t file, std::uint64_t offset) {
    const Text& text = texts_[file];
    reader_.reset();
    reader_.emplace(open_bytes(text.path, text.identity, reading_options(memory_)), memory_ / 8,
                    budget_);
    if (offset > 0) reader_->seek(offset);
  }

  const Reservation share_;
  const Budget budget_;
  const std::uint64_t memory_;
  std::vector<Text> texts_;
  std::uint64_t bytes_ = 0, line_bytes_ = 1, item_ = 0;
  std::size_t file_ = 0;  // the file after the current one
  std::optional<ByteReader> reader_;
  Reservation last_share_;
  std::vector<std::byte> last_;
};

class DocumentItemSource final : public ItemSource {
 public:
  DocumentItemSource(const TokenLayout& tokens, const DocumentSource& documents,
                     const Budget& budget, std::uint64_t memory)
      : share_(budget.reserve(memory, "buffers to read ahead")),
        token_bytes_(tokens.layout.dtype.size),
        index_(DocumentIndex::open(tokens.layout, tokens.files, documents, budget)),
        documents_(index_, budget),
        reader_(Internals::make(tokens.layout, reading_options(memory)), memory / 8, budget) {
    if (index_->size() > 0) end_ = documents_.start(0);
    reader_.seek(end_ * token_bytes_);
  }
  std::optional<std::span<const std::byte>> next() override {
    if (item_ == index_->size()) return std::nullopt;
    const std::uint64_t begin = end_;
    end_ = documents_.start(++item_);
    return reader_.take((end_ - begin) * token_bytes_);
  }
  ItemPosition position() const override { return {item_, reader_.offset()}; }
  void seek(const ItemPosition& position) override {
    item_ = position.item;
    end_ = documents_.start(item_);
    reader_.seek(end_ * token_bytes_);
  }
  void seek_item(std::uint64_t item) override { seek({item, 0}); }
  std::uint64_t bytes() const override { return reader_.size(); }
  std::uint64_t estimated_items() const override { return index_->size(); }
  std::uint64_t item_bytes() const override { return 0; }

 private:
  const Reservation share_;
  const std::uint64_t token_bytes_;
  const std::shared_ptr<const DocumentIndex> index_;
  DocumentReader documents_;
  ByteReader reader_;
  std::uint64_t item_ = 0, end_ = 0;
};

std::string writer_format(const std::string& read) {
  return read == "raw" || read == "mixed" ? "nanogpt" : read;
}

std::unique_ptr<ItemSource> open_tokens(const ItemInput& input, const Budget& budget,
                                        std::uint64_t memory) {
  const TokenLayout tokens = read_token_layout(input.paths, {.dtype = input.dtype});
  std::unique_ptr<ItemSource> source;
  if (input.unit == ItemUnit::kDocuments) {
    source = std::make_unique<DocumentItemSource>(
        tokens, DocumentSource{.bos = input.bos, .eos = input.eos}, budget, memory);
  } else {
    if (input.block_tokens == 0 || input.block_tokens > std::uint64_t{1} << 40) {
      throw Error(ErrorKind::kInvalid, "open", "a block must have 1 to 2^40 tokens")
          .in(input.paths.front())
          .hint("1,024, or the block size of your model");
    }
    source =
        std::make_unique<RowSource>(Internals::make(tokens.layout, reading_options(memory)),
                                    input.block_tokens * tokens.layout.dtype.size, budget, memory);
  }
  source->kind.tokens.emplace();
  source->kind.tokens->dtype = tokens.layout.dtype;
  source->kind.tokens->format = writer_format(tokens.layout.format);
  return source;
}

std::unique_ptr<ItemSource> open_rows(const ItemInput& input, const Budget& budget,
                                      std::uint64_t memory, std::uint64_t group_bytes) {
  ArrayOptions options = reading_options(memory);
  options.dtype = input.dtype;
  options.shape = input.shape;
  Array array = Array::open(input.paths, options);
  ArrayWriterOptions made;
  made.dtype = array.dtype();
  made.format = array.format() == "npy" ? "npy" : "raw";
  if (made.format == "npy" && made.dtype.kind == DTypeKind::kRecord && !input.dtype) {
    made.descr = common_descr(input.paths);
  }
  made.shape = {-1};
  for (std::size_t i = 1; i < array.shape().size(); ++i) {
    made.shape.push_back(static_cast<std::int64_t>(array.shape()[i]));
  }
  const std::uint64_t row_bytes = array.row_bytes();
  const std::uint64_t together = std::max<std::uint64_t>(1, group_bytes / row_bytes);
  auto source = std::make_unique<RowSource>(std::move(array), together * row_bytes, budget, memory);
  source->kind.row_bytes = row_bytes;
  source->kind.array = made;
  return source;
}

std::unique_ptr<ItemSource> open_unit(const ItemInput& input, const Budget& budget,
                                      std::uint64_t memory, std::uint64_t group_bytes) {
  if (input.unit == ItemUnit::kLines) {
    auto source = std::make_unique<LineSource>(input.paths, budget, memory);
    source->kind.array.dtype = DType::of<std::uint8_t>();
    source->kind.array.format = "raw";
    return source;
  }
  return input.unit == ItemUnit::kRows ? open_rows(input, budget, memory, group_bytes)
                                       : open_tokens(input, budget, memory);
}

// An option that has no effect is a mistake of the caller.
void refuse_other_units(const ItemInput& input) {
  const auto refuse = [&](const std::string& what, const std::string& hint) {
    throw Error(ErrorKind::kInvalid, "open",
                what + ", and the unit is " + std::string(item_unit_name(input.unit)))
        .in(input.paths.front())
        .hint(hint);
  };
  const bool rows = input.unit == ItemUnit::kRows, lines = input.unit == ItemUnit::kLines;
  if (lines && input.dtype) refuse("a dtype was given", "text has none; choose the unit rows");
  if (!rows && !input.shape.empty()) refuse("a shape was given", "it belongs to the unit rows");
  if ((rows || lines) && (input.bos || input.eos)) {
    refuse("bos or eos was given", "they belong to the unit documents");
  }
  if ((rows || lines) && input.block_tokens > 0) {
    refuse("the tokens of a block were given", "they belong to the unit blocks");
  }
}

// Whether the format of the files shows that they hold documents of tokens.
bool has_documents(const std::vector<std::string>& paths) {
  try {
    const std::string format = read_token_layout(paths, {}).layout.format;
    return format == "llm.c" || format == "megatron" || format == "datatrove";
  } catch (const Error&) {
    return false;
  }
}

constexpr std::string_view kUnitNames[] = {"rows", "lines", "documents", "blocks"};

}  // namespace

ItemUnit parse_item_unit(std::string_view name) {
  for (std::size_t i = 0; i < std::size(kUnitNames); ++i) {
    if (name == kUnitNames[i]) return static_cast<ItemUnit>(i);
  }
  throw Error(ErrorKind::kInvalid, "unit", "there is no \"" + std::string(name) + "\"")
      .hint("rows, lines, documents or blocks");
}

std::string_view item_unit_name(ItemUnit unit) { return kUnitNames[static_cast<int>(unit)]; }

ItemUnit usual_unit(const ItemInput& input) {
  const std::string& first = input.paths.front();
  constexpr std::string_view kTexts[] = {".txt", ".jsonl", ".ndjson", ".csv", ".tsv", ".md"};
  const bool text =
      std::ranges::any_of(kTexts, [&](std::string_view end) { return first.ends_with(end); });
  if (input.block_tokens > 0) return ItemUnit::kBlocks;
  if (input.bos || input.eos || (!text && !input.dtype && has_documents(input.paths))) {
    return ItemUnit::kDocuments;
  }
  return text ? ItemUnit::kLines : ItemUnit::kRows;
}

std::unique_ptr<ItemSource> open_items(const ItemInput& input, const Budget& budget,
                                       std::uint64_t memory, std::uint64_t group_bytes) {
  if (input.paths.empty()) throw Error(ErrorKind::kInvalid, "open", "no file was named");
  refuse_other_units(input);
  // Taken before the files are read, so that a change in the meantime is noticed.
  std::vector<std::string> files = all_files(input);
  std::string fingerprint = fingerprint_of(input, files);
  auto source = open_unit(input, budget, memory, group_bytes);
  source->files_ = std::move(files);
  source->fingerprint_ = std::move(fingerprint);
  return source;
}

void ItemSource::seek_item(std::uint64_t item) {
  seek({});
  for (std::uint64_t i = 0; i < item && next(); ++i) {
  }
}

void ItemSource::require_apart_from(const std::string& output, const std::string& format) const {
  const bool own = kind.tokens && format.empty();
  require_other_files(files_, output, own ? kind.tokens->format : format);
}

}  // namespace evenkeel
