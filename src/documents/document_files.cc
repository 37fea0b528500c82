#include "documents/document_files.h"

#include <algorithm>
#include <utility>

#include "base/checked.h"
#include "base/visible.h"
#include "evenkeel/bytes.h"
#include "format/npy.h"
#include "format/part.h"
#include "format/source.h"
#include "format/token_part.h"
#include "remote/opening.h"

namespace evenkeel {
namespace {

constexpr DType kU64{DTypeKind::kUint, 8};
constexpr std::uint64_t kMegatronHeader = 34;

bool file_exists(const std::string& path) {
  if (is_url(path)) return object_exists(path);
  struct stat status;
  return sys::lstat(path.c_str(), &status) == 0;
}

// "train.bin.doc.npy" or "train.doc.npy"; empty if there is neither.
std::string offsets_beside(const std::string& path) {
  constexpr std::string_view kSuffix = ".doc.npy";
  if (is_url(path) && path.starts_with("http") && path.find('?') != path.npos) return {};
  if (std::string beside = path + std::string(kSuffix); file_exists(beside)) return beside;
  const std::size_t dot = path.find_last_of("./");
  if (dot == path.npos || path[dot] == '/') return {};
  std::string beside = path.substr(0, dot) + std::string(kSuffix);
  return file_exists(beside) ? beside : std::string();
}

// Joins the numbers of all indexes to one array for each dtype and byte order, so that a stream of
// a thousand files has one engine, not a thousand. Files and objects on servers are kept apart.
class NumberArrays {
 public:
  struct Place {
    std::size_t array;
    std::uint64_t row;
  };
  Place add(const Source& source, DType dtype, bool swapped, std::uint64_t offset,
            std::uint64_t count) {
    std::size_t i = 0;
    const bool remote = source.remote != nullptr;
    while (i < layouts_.size() &&
           (layouts_[i].dtype != dtype || layouts_[i].swapped != swapped || remote_[i] != remote)) {
      ++i;
    }
    if (i == layouts_.size()) {
      remote_.push_back(remote);
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
  std::vector<bool> remote_;  // of each layout: it is on a server
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

// An integer of 4 or 8 bytes, as NPY files store it.
std::uint64_t load_npy_number(const std::string& bytes, bool swapped) {
  if (bytes.size() == 4) {
    const auto number = load_number<std::uint32_t>(bytes.data());
    return swapped ? __builtin_bswap32(number) : number;
  }
  const auto number = load_number<std::uint64_t>(bytes.data());
  return swapped ? __builtin_bswap64(number) : number;
}

FileDocuments npy_documents(const std::string& path, std::uint64_t tokens, NumberArrays& numbers) {
  const Source index = open_source(path);
  const std::string head = index.read(0, kHeadBytes);
  if (!is_npy(head)) {
    throw wrong_index(path, "offsets of documents must be an NPY file, but this is not one")
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
  if (header.shape[0] == 0) throw wrong_index(path, "it has no documents");
  const Part part = npy_part(index, header, {});
  FileDocuments file{.kind = FileDocuments::Kind::kStarts, .path = path};
  file.documents = header.shape[0];
  // The last number may be the number of tokens, which is not the start of a document.
  const std::string last =
      index.read(part.segment.data_offset + (file.documents - 1) * dtype.size, dtype.size);
  if (last.size() == dtype.size && load_npy_number(last, part.swapped) == tokens) {
    if (--file.documents == 0) throw wrong_index(path, "it has no documents");
  }
  // Read as unsigned, a negative number is larger than any file.
  const DType read_as{DTypeKind::kUint, dtype.size};
  const auto place =
      numbers.add(index, read_as, part.swapped, part.segment.data_offset, file.documents);
  file.array = place.array;
  file.first_row = place.row;
  file.first = UINT64_MAX;  // not read yet
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
  FileDocuments file{.kind = FileDocuments::Kind::kStarts, .path = stored.source.path};
  file.documents = stored.documents;
  file.first = stored.first;
  const auto place = numbers.add(stored.source, kU64, false, kStoredIndexHeader, stored.documents);
  file.array = place.array;
  file.first_row = place.row;
  return file;
}

}  // namespace

Error wrong_index(const std::string& path, const std::string& what) {
  return Error(ErrorKind::kFormat, "documents", what).in(path);
}

std::optional<Separator> separator_of(const TokenFileInfo& file, const DocumentSource& source) {
  if (source.bos) return Separator{*source.bos, true};
  if (source.eos) return Separator{*source.eos, false};
  if (file.format != "llm.c") return std::nullopt;
  return Separator{file.note == "Llama-3" ? 128000 : 50256, true};
}

bool has_own_index(const TokenFileInfo& file) {
  return !file.index_path.empty() || !offsets_beside(file.path).empty();
}

DocumentFiles open_document_files(const Layout& stream, const std::vector<TokenFileInfo>& files,
                                  const DocumentSource& source, const Budget& budget) {
  if (source.bos && source.eos) {
    throw Error(ErrorKind::kInvalid, "documents", "bos and eos exclude each other; got both")
        .hint("bos: documents begin with it; eos: they end with it");
  }
  NumberArrays numbers;
  DocumentFiles found;
  std::vector<FileDocuments>& documents = found.files;
  for (const TokenFileInfo& info : files) {
    const std::string beside = info.index_path.empty() ? offsets_beside(info.path) : "";
    documents.push_back(info.format == "datatrove"  ? datatrove_documents(info, numbers)
                        : info.format == "megatron" ? megatron_documents(info, numbers)
                        : !beside.empty()           ? npy_documents(beside, info.tokens, numbers)
                        : info.tokens == 0
                            ? FileDocuments{}
                            : stored_documents(info, stream, source, budget, numbers));
    documents.back().tokens = info.tokens;
    documents.back().token_bytes = stream.dtype.size;
  }
  found.arrays = numbers.open(budget);
  return found;
}

}  // namespace evenkeel
