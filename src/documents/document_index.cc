#include "documents/document_index.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <utility>

#include "base/checked.h"
#include "base/visible.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"
#include "format/npy.h"
#include "format/part.h"
#include "format/source.h"
#include "format/token_part.h"

namespace evenkeel {
namespace {

constexpr DType kU64{DTypeKind::kUint, 8};
constexpr std::uint64_t kMegatronHeader = 34;

Error wrong_index(const std::string& path, const std::string& what) {
  return Error(ErrorKind::kFormat, "documents", what).in(path);
}

bool file_exists(const std::string& path) {
  struct stat status;
  return sys::lstat(path.c_str(), &status) == 0;
}

// "train.bin.doc.npy" or "train.doc.npy"; empty: there is none.
std::string offsets_beside(const std::string& path) {
  constexpr std::string_view kSuffix = ".doc.npy";
  if (std::string beside = path + std::string(kSuffix); file_exists(beside)) return beside;
  const std::size_t dot = path.find_last_of("./");
  if (dot == path.npos || path[dot] == '/') return {};
  std::string beside = path.substr(0, dot) + std::string(kSuffix);
  return file_exists(beside) ? beside : std::string();
}

// The numbers of all indexes, joined to one array for each dtype and byte order: a stream of a
// thousand files then has one engine, not a thousand.
class NumberArrays {
 public:
  struct Place {
    std::size_t array;
    std::uint64_t row;
  };
  Place add(const Source& source, DType dtype, bool swapped, std::uint64_t offset,
            std::uint64_t count) {
    std::size_t i = 0;
    while (i < layouts_.size() && (layouts_[i].dtype != dtype || layouts_[i].swapped != swapped)) {
      ++i;
    }
    if (i == layouts_.size()) {
      Layout& layout = layouts_.emplace_back();
      layout.format = "raw";
      layout.dtype = dtype;
      layout.swapped = swapped;
      layout.row_bytes = dtype.size;
    }
    const std::uint64_t row = layouts_[i].rows;
    append(layouts_[i], token_part("raw", source, dtype, offset, count));
    layouts_[i].shape = {layouts_[i].rows};
    return {i, row};
  }
  std::vector<std::shared_ptr<Array::Impl>> open(const Budget& budget) {
    std::vector<std::shared_ptr<Array::Impl>> arrays;
    for (Layout& layout : layouts_) {
      arrays.push_back(std::make_shared<Array::Impl>(std::move(layout),
                                                     ArrayOptions{.budget = budget, .cache = 0}));
    }
    return arrays;
  }

 private:
  std::vector<Layout> layouts_;
};

FileDocuments datatrove_documents(const TokenFileInfo& info, NumberArrays& numbers) {
  const Source index = open_even_empty(info.index_path);
  FileDocuments file{.kind = FileDocuments::Kind::kEnds, .path = info.index_path};
  file.documents = index.identity.size / 8;
  const auto place = numbers.add(index, kU64, false, 0, file.documents);
  file.array = place.array;
  file.first_row = place.row;
  return file;
}

FileDocuments megatron_documents(const TokenFileInfo& info, NumberArrays& numbers) {
  const Source index = open_even_empty(info.index_path);
  const std::string head = index.read(0, kMegatronHeader);
  FileDocuments file{.kind = FileDocuments::Kind::kMegatron, .path = info.index_path};
  std::uint64_t bounds = 0;
  if (head.size() == kMegatronHeader) {
    file.sequences = load_number<std::uint64_t>(head.data() + 18);
    bounds = load_number<std::uint64_t>(head.data() + 26);
  }
  const auto pointers_end = checked_mul(file.sequences, 12);
  const auto bounds_bytes = checked_mul(bounds, 8);
  const auto arrays =
      pointers_end && bounds_bytes ? checked_add(*pointers_end, *bounds_bytes) : std::nullopt;
  if (bounds == 0 || !arrays || *arrays > index.identity.size ||
      kMegatronHeader > index.identity.size - *arrays) {
    throw wrong_index(info.index_path, "the index changed since the tokens were opened");
  }
  file.documents = bounds - 1;
  const auto pointers =
      numbers.add(index, kU64, false, kMegatronHeader + 4 * file.sequences, file.sequences);
  const auto documents = numbers.add(index, kU64, false, kMegatronHeader + *pointers_end, bounds);
  file.array = pointers.array;
  file.first_row = pointers.row;
  file.bounds_row = documents.row;
  return file;
}

FileDocuments npy_documents(const std::string& path, NumberArrays& numbers) {
  const Source index = open_source(path);
  const std::string head = index.read(0, kHeadBytes);
  if (!is_npy(head)) {
    throw wrong_index(path, "offsets of documents must be an NPY file, and this is none")
        .hint("write it with numpy.save");
  }
  const NpyHeader header = read_npy_header(index, head);
  const DType dtype = header.element.dtype;
  const bool whole = dtype.kind == DTypeKind::kInt || dtype.kind == DTypeKind::kUint;
  if (header.shape.size() != 1 || !whole || dtype.size < 4) {
    throw wrong_index(path,
                      "offsets of documents must be int32, uint32, int64 or uint64 on one "
                      "axis; the header says " +
                          dtype.name() + " of shape " + shape_text(header.shape));
  }
  if (header.shape[0] == 0) throw wrong_index(path, "there is no document in it");
  const Part part = npy_part(index, header, {});
  FileDocuments file{.kind = FileDocuments::Kind::kStarts, .path = path};
  file.documents = header.shape[0];
  // A negative number is larger than any file, as unsigned.
  const DType read_as{DTypeKind::kUint, dtype.size};
  const auto place =
      numbers.add(index, read_as, part.swapped, part.segment.data_offset, file.documents);
  file.array = place.array;
  file.first_row = place.row;
  file.first = UINT64_MAX;  // to be read
  return file;
}

FileDocuments stored_documents(const TokenFileInfo& info, const Layout& stream,
                               const DocumentSource& source, const Budget& budget,
                               NumberArrays& numbers) {
  const auto separator = separator_of(info, source);
  if (!separator) {
    throw Error(ErrorKind::kInvalid, "documents",
                "nothing says where documents begin: " + info.format +
                    " files have no index, and neither bos nor eos was given")
        .in(info.path)
        .hint(
            "give the token at which documents begin (bos) or end (eos), or write their first "
            "tokens to " +
            visible(info.path) + ".doc.npy");
  }
  const StoredIndex stored =
      find_stored_index(info, stream, *separator, source.index_folder, budget);
  const Source index = open_source(stored.path);
  FileDocuments file{.kind = FileDocuments::Kind::kStarts, .path = stored.path};
  file.documents = stored.documents;
  file.first = stored.first;
  const auto place = numbers.add(index, kU64, false, kStoredIndexHeader, stored.documents);
  file.array = place.array;
  file.first_row = place.row;
  return file;
}

}  // namespace

std::optional<Separator> separator_of(const TokenFileInfo& file, const DocumentSource& source) {
  if (source.bos) return Separator{*source.bos, true};
  if (source.eos) return Separator{*source.eos, false};
  if (file.format != "llm.c") return std::nullopt;
  return Separator{file.note == "Llama-3" ? 128000 : 50256, true};
}

bool has_own_index(const TokenFileInfo& file) {
  return !file.index_path.empty() || !offsets_beside(file.path).empty();
}

std::shared_ptr<const DocumentIndex> DocumentIndex::open(const Layout& stream,
                                                         const std::vector<TokenFileInfo>& files,
                                                         const DocumentSource& source,
                                                         const Budget& budget) {
  if (source.bos && source.eos) {
    throw Error(ErrorKind::kInvalid, "documents", "bos and eos exclude each other; got both")
        .hint("bos: documents begin with it; eos: they end with it");
  }
  std::shared_ptr<DocumentIndex> index(new DocumentIndex);
  index->share_ = budget.reserve(stream.segments.size() * sizeof(Part), "list of documents' files");
  index->share_.keep_in_children();
  NumberArrays numbers;
  std::vector<FileDocuments> documents;
  for (const TokenFileInfo& info : files) {
    const std::string beside = info.index_path.empty() ? offsets_beside(info.path) : "";
    documents.push_back(info.format == "datatrove"  ? datatrove_documents(info, numbers)
                        : info.format == "megatron" ? megatron_documents(info, numbers)
                        : !beside.empty()           ? npy_documents(beside, numbers)
                        : info.tokens == 0
                            ? FileDocuments{}
                            : stored_documents(info, stream, source, budget, numbers));
    documents.back().tokens = info.tokens;
    documents.back().token_bytes = stream.dtype.size;
  }
  index->arrays_ = numbers.open(budget);
  index->add_parts(stream, documents, files);
  DocumentReader reader(index, budget);
  index->number_documents(reader);
  return index;
}

void DocumentIndex::add_parts(const Layout& stream, const std::vector<FileDocuments>& files,
                              const std::vector<TokenFileInfo>& infos) {
  std::map<std::string_view, std::size_t> by_path;
  for (std::size_t i = 0; i < infos.size(); ++i) by_path.emplace(infos[i].path, i);
  parts_.reserve(stream.segments.size());
  for (const Segment& segment : stream.segments) {
    const std::size_t file = by_path.at(segment.path);
    Part part{.file = files[file]};
    part.first_token = segment.first_row;
    part.tokens = segment.rows;
    part.skipped_tokens = (segment.data_offset - infos[file].data_offset) / stream.row_bytes;
    part.first_block = blocks_;
    // The last block holds at least the entry after the last document.
    part.blocks = part.file.documents / 512 + 1;
    blocks_ += part.blocks;
    parts_.push_back(std::move(part));
  }
  tokens_ = stream.rows;
}

void DocumentIndex::number_documents(DocumentReader& reader) {
  for (Part& part : parts_) {
    FileDocuments& file = part.file;
    if (file.first == UINT64_MAX) file.first = reader.entry(part, 0);
    std::uint64_t end = file.documents;  // of the entries in the part
    if (part.skipped_tokens > 0 && file.documents > 0) {
      const std::uint64_t found = reader.entry_at(part, part.skipped_tokens);
      part.skipped_documents = found == UINT64_MAX ? 0 : found;
    }
    if (part.skipped_tokens + part.tokens < file.tokens && file.documents > 0) {
      const std::uint64_t last = reader.entry_at(part, part.skipped_tokens + part.tokens - 1);
      end = last == UINT64_MAX ? 0 : last + 1;
    }
    // What lies before the file's first document belongs to the last document of the file before.
    const bool begins_inside = part.skipped_tokens < file.first || file.documents == 0;
    part.head = begins_inside && (part.first_token == 0);
    // A slice that begins within a document: in the next file of a stream it cannot.
    part.first_document = documents_;
    part.documents = end - part.skipped_documents + (part.head ? 1 : 0);
    documents_ += part.documents;
  }
}

DocumentReader::DocumentReader(std::shared_ptr<const DocumentIndex> index, const Budget& budget)
    : index_(std::move(index)) {
  // A share of the budget that loaders do not miss; the whole index if it is small.
  const std::uint64_t bytes = kEntries * sizeof(std::uint64_t);
  const std::uint64_t most = std::clamp<std::uint64_t>(budget.limit() / 64 / bytes, 16, 4096);
  while (sets_ * kWays < std::min(most, index_->blocks())) sets_ *= 2;
  const std::size_t frames = sets_ * kWays;
  memory_ = PageBuffer(
      budget,
      (frames + kTogether) * bytes + frames * sizeof(Frame) + 4 * kTogether * sizeof(Search),
      "blocks of the index of documents");
  frames_ = reinterpret_cast<std::uint64_t*>(memory_.data());
  staging_ = frames_ + frames * kEntries;
  table_.resize(frames);
}

const std::uint64_t* DocumentReader::cached(std::uint64_t block) {
  const std::size_t set = block * 0x9e3779b97f4a7c15 >> 32 & (sets_ - 1);
  for (std::size_t i = set * kWays; i < (set + 1) * kWays; ++i) {
    if (table_[i].block != block) continue;
    table_[i].used = ++clock_;
    return frames_ + i * kEntries;
  }
  return nullptr;
}

std::uint64_t* DocumentReader::new_frame(std::uint64_t block) {
  const std::size_t set = block * 0x9e3779b97f4a7c15 >> 32 & (sets_ - 1);
  std::size_t oldest = set * kWays;
  for (std::size_t i = oldest; i < (set + 1) * kWays; ++i) {
    if (table_[i].used < table_[oldest].used) oldest = i;
  }
  table_[oldest] = {block, ++clock_};
  return frames_ + oldest * kEntries;
}

const DocumentReader::Part& DocumentReader::part_of_block(std::uint64_t block) const {
  const auto after = std::ranges::upper_bound(index_->parts_, block, {},
                                              [](const Part& p) { return p.first_block; });
  return *(after - 1);
}

void DocumentReader::read_numbers(std::size_t array, std::span<const std::uint64_t> rows,
                                  std::uint64_t count, std::uint64_t* out) {
  Array::Impl& numbers = *index_->arrays_[array];
  numbers.crops(rows, count, reinterpret_cast<std::byte*>(out));
  if (numbers.layout.row_bytes == 8) return;
  const auto* narrow = reinterpret_cast<const std::byte*>(out);
  for (std::uint64_t i = rows.size() * count; i-- > 0;) {
    std::uint32_t number;
    std::memcpy(&number, narrow + i * sizeof number, sizeof number);
    out[i] = number;
  }
}

void DocumentReader::read_megatron(const FileDocuments& file, std::uint64_t first,
                                   std::uint64_t count, std::uint64_t* out) {
  const std::uint64_t row = file.bounds_row + first;
  read_numbers(file.array, {&row, 1}, count, out);
  const std::uint32_t item_size = file.token_bytes;
  std::uint64_t last = 0, inside = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    if (out[i] > file.sequences || out[i] < last) {
      throw wrong_index(file.path, "document bound " + with_commas(first + i) + " is " +
                                       std::to_string(out[i]) + " of " +
                                       with_commas(file.sequences) +
                                       " sequences, and the one before it " + with_commas(last));
    }
    last = out[i];
    if (out[i] < file.sequences) inside = i + 1;
  }
  if (inside > 0) {
    std::vector<std::uint64_t> rows(out, out + inside);
    for (std::uint64_t& one : rows) one += file.first_row;
    if (rows.back() - rows.front() == inside - 1) {
      read_numbers(file.array, {rows.data(), 1}, inside, out);
    } else {
      read_numbers(file.array, rows, 1, out);
    }
  }
  for (std::uint64_t i = 0; i < inside; ++i) {
    if (out[i] % item_size != 0) {
      throw wrong_index(file.path, "document " + with_commas(first + i) + " begins at byte " +
                                       with_commas(out[i]) + ", inside a token");
    }
    out[i] /= item_size;
  }
  std::fill(out + inside, out + count, file.tokens);
}

void DocumentReader::read_block(const Part& part, std::uint64_t number, std::uint64_t* out) {
  const FileDocuments& file = part.file;
  const std::uint64_t first = number * kBlock;
  // Entries of the file from `first` on, the one after the last document included.
  const std::uint64_t count = std::min(kEntries, file.documents + 1 - first);
  std::fill(out + count, out + kEntries, file.tokens);
  if (file.kind == FileDocuments::Kind::kMegatron) return read_megatron(file, first, count, out);
  if (file.kind == FileDocuments::Kind::kStarts) {
    const std::uint64_t stored = std::min(count, file.documents - first);
    if (stored < count) out[stored] = file.tokens;
    const std::uint64_t row = file.first_row + first;
    if (stored > 0) read_numbers(file.array, {&row, 1}, stored, out);
    return;
  }
  // Ends: entry i is end i-1, and entry 0 is 0.
  const std::uint64_t zero = first == 0 ? 1 : 0;
  if (zero) out[0] = 0;
  const std::uint64_t row = file.first_row + first - (1 - zero);
  if (count > zero) read_numbers(file.array, {&row, 1}, count - zero, out + zero);
}

void DocumentReader::check(const Part& part, std::uint64_t number,
                           const std::uint64_t* entries) const {
  const FileDocuments& file = part.file;
  std::uint64_t wrong = 0;  // without branches: nearly all blocks are right
  for (std::uint64_t i = 0; i < kBlock; ++i) wrong |= entries[i] > entries[i + 1] ? 1 : 0;
  if (wrong == 0 && entries[kBlock] <= file.tokens) return;
  for (std::uint64_t i = 0; i <= kBlock; ++i) {
    const std::string name = "document " + with_commas(number * kBlock + i);
    if (entries[i] > file.tokens) {
      throw wrong_index(file.path, name + " begins at token " + std::to_string(entries[i]) +
                                       ", beyond the " + with_commas(file.tokens) + " of the file")
          .hint("the index is damaged or belongs to another file; write it again");
    }
    if (i > 0 && entries[i] < entries[i - 1]) {
      throw wrong_index(file.path, name + " begins at token " + with_commas(entries[i]) +
                                       ", before the previous one, which begins at " +
                                       with_commas(entries[i - 1]))
          .hint("the index is damaged; write it again");
    }
  }
}

// Blocks that are whole and plain are read together, so that the disk has many requests at once.
void DocumentReader::load(std::span<const std::uint64_t> blocks) {
  std::array<std::uint64_t, kTogether> rows, numbers;
  for (std::size_t at = 0; at < blocks.size();) {
    std::size_t together = 0;
    std::size_t array = 0;
    for (; at + together < blocks.size() && together < kTogether; ++together) {
      const std::uint64_t block = blocks[at + together];
      const Part& part = part_of_block(block);
      const FileDocuments& file = part.file;
      const std::uint64_t first = (block - part.first_block) * kBlock;
      const bool ends = file.kind == FileDocuments::Kind::kEnds;
      const std::uint64_t least = ends ? 1 : 0;
      const bool plain = file.kind != FileDocuments::Kind::kMegatron && first >= least &&
                         first + kEntries - least <= file.documents &&
                         (together == 0 || file.array == array);
      if (!plain) break;
      array = file.array;
      rows[together] = file.first_row + first - least;
      numbers[together] = block;
    }
    if (together > 0) {
      read_numbers(array, std::span(rows).first(together), kEntries, staging_);
      for (std::size_t i = 0; i < together; ++i) {
        const Part& part = part_of_block(numbers[i]);
        check(part, numbers[i] - part.first_block, staging_ + i * kEntries);
        std::memcpy(new_frame(numbers[i]), staging_ + i * kEntries,
                    kEntries * sizeof(std::uint64_t));
      }
      at += together;
      continue;
    }
    const Part& part = part_of_block(blocks[at]);
    read_block(part, blocks[at] - part.first_block, staging_);
    check(part, blocks[at] - part.first_block, staging_);
    std::memcpy(new_frame(blocks[at]), staging_, kEntries * sizeof(std::uint64_t));
    ++at;
  }
}

const std::uint64_t* DocumentReader::block(const Part& part, std::uint64_t number) {
  const std::uint64_t id = part.first_block + number;
  if (const std::uint64_t* found = cached(id)) return found;
  load({&id, 1});
  return cached(id);
}

std::uint64_t DocumentReader::entry(const Part& part, std::uint64_t number) {
  return block(part, number / kBlock)[number % kBlock];
}

DocumentReader::Search DocumentReader::search_for(const Part& part, std::uint64_t token) const {
  Search search{.part = &part, .token = token};
  search.highest = part.blocks - 1;
  search.highest_value = part.file.tokens;
  return search;
}

// Interpolates, because documents are spread evenly enough for that to take two or three looks; and
// halves what is left every third time, for those that are not.
bool DocumentReader::advance(Search& search) {
  const std::uint64_t* entries = block(*search.part, search.guess);
  const std::uint64_t first = entries[0], next = entries[kBlock];
  const bool last = search.guess + 1 == search.part->blocks;
  if (first < search.lowest_value || next > search.highest_value) {
    throw wrong_index(search.part->file.path,
                      "documents " + with_commas(search.guess * kBlock) + " to " +
                          with_commas((search.guess + 1) * kBlock) + " begin at tokens " +
                          with_commas(first) + " to " + with_commas(next) +
                          ", but others of the index say " + with_commas(search.lowest_value) +
                          " to " + with_commas(search.highest_value))
        .hint("offsets must not decrease; write the index again");
  }
  if (search.token < first) {
    if (search.guess == search.lowest) return true;  // before the first
    search.highest = search.guess - 1;
    search.highest_value = first;
  } else if (search.token >= next && !last) {
    search.lowest = search.guess + 1;
    search.lowest_value = next;
  } else {
    const std::uint64_t documents = search.part->file.documents;
    const std::uint64_t here = std::min(kBlock, documents - search.guess * kBlock);
    const auto* after = std::upper_bound(entries, entries + here, search.token);
    search.found = search.guess * kBlock + static_cast<std::uint64_t>(after - entries) - 1;
    return true;
  }
  return false;
}

std::uint64_t DocumentReader::guess_of(const Search& search) {
  const std::uint64_t blocks = search.highest - search.lowest;
  const std::uint64_t values = search.highest_value - search.lowest_value;
  if (blocks == 0 || values == 0) return search.lowest;
  if (search.looks % 3 == 2) return search.lowest + blocks / 2;
  const auto into =
      std::min(search.token - std::min(search.token, search.lowest_value), values - 1);
  return search.lowest +
         static_cast<std::uint64_t>(static_cast<__uint128_t>(into) * (blocks + 1) / values);
}

void DocumentReader::run_searches() {
  std::array<std::uint64_t, kTogether> missing;
  std::size_t left = searches_.size();
  while (left > 0) {
    std::size_t count = 0;
    for (std::size_t i = 0; i < left; ++i) {
      Search& search = searches_[i];
      search.guess = guess_of(search);
      ++search.looks;
      const std::uint64_t id = search.part->first_block + search.guess;
      if (cached(id)) continue;
      if (std::find(missing.begin(), missing.begin() + count, id) == missing.begin() + count) {
        missing[count++] = id;
      }
    }
    if (count > 1) load(std::span(missing).first(count));
    for (std::size_t i = 0; i < left;) {
      if (advance(searches_[i])) {
        std::swap(searches_[i], searches_[--left]);
      } else {
        ++i;
      }
    }
  }
}

std::uint64_t DocumentReader::entry_at(const Part& part, std::uint64_t token_in_file) {
  searches_.assign(1, search_for(part, token_in_file));
  run_searches();
  return searches_[0].found;
}

std::uint64_t DocumentReader::document_of(const Search& search) const {
  const Part& part = *search.part;
  if (search.found == UINT64_MAX || search.found < part.skipped_documents) {
    // Before the file's first document.
    return part.head ? part.first_document : part.first_document - 1;
  }
  return part.first_document + (part.head ? 1 : 0) + search.found - part.skipped_documents;
}

void DocumentReader::locate(std::span<const std::uint64_t> tokens,
                            std::span<std::uint64_t> documents) {
  for (std::size_t at = 0; at < tokens.size(); at += kTogether) {
    const std::size_t count = std::min<std::size_t>(kTogether, tokens.size() - at);
    searches_.clear();
    for (std::size_t i = at; i < at + count; ++i) {
      const auto after = std::ranges::upper_bound(index_->parts_, tokens[i], {},
                                                  [](const Part& p) { return p.first_token; });
      const Part& part = *(after - 1);
      if (part.file.documents == 0) {
        documents[i] = part.head ? part.first_document : part.first_document - 1;
        continue;
      }
      Search search = search_for(part, tokens[i] - part.first_token + part.skipped_tokens);
      search.result = i;
      searches_.push_back(search);
    }
    run_searches();
    for (const Search& search : searches_) documents[search.result] = document_of(search);
  }
}

std::uint64_t DocumentReader::locate(std::uint64_t token) {
  std::uint64_t document;
  locate({&token, 1}, {&document, 1});
  return document;
}

std::uint64_t DocumentReader::start(std::uint64_t document) {
  if (document >= index_->size()) return index_->tokens();
  if (!last_part_ || document < last_part_->first_document ||
      document - last_part_->first_document >= last_part_->documents) {
    // Parts without documents of their own share the number with the next one.
    const auto after = std::ranges::upper_bound(index_->parts_, document, {},
                                                [](const Part& p) { return p.first_document; });
    last_part_ = &*(after - 1);
  }
  const Part& part = *last_part_;
  std::uint64_t number = document - part.first_document;
  if (part.head && number-- == 0) return part.first_token;
  const std::uint64_t token = entry(part, part.skipped_documents + number);
  return part.first_token + std::max(token, part.skipped_tokens) - part.skipped_tokens;
}

}  // namespace evenkeel
