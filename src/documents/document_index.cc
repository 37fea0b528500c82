#include "documents/document_index.h"

#include <map>
#include <string_view>
#include <utility>

namespace evenkeel {

std::shared_ptr<const DocumentIndex> DocumentIndex::open(const Layout& stream,
                                                         const std::vector<TokenFileInfo>& files,
                                                         const DocumentSource& source,
                                                         const Budget& budget) {
  std::shared_ptr<DocumentIndex> index(new DocumentIndex);
  index->share_ =
      budget.reserve(stream.segments.size() * sizeof(Part), "list of files with documents");
  index->share_.keep_in_children();
  DocumentFiles found = open_document_files(stream, files, source, budget);
  index->arrays_ = std::move(found.arrays);
  index->add_parts(stream, found.files, files);
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
    std::uint64_t end = file.documents;  // the end of the entries in the part
    if (part.skipped_tokens > 0 && file.documents > 0) {
      const std::uint64_t found = reader.entry_at(part, part.skipped_tokens);
      part.skipped_documents = found == UINT64_MAX ? 0 : found;
    }
    if (part.skipped_tokens + part.tokens < file.tokens && file.documents > 0) {
      const std::uint64_t last = reader.entry_at(part, part.skipped_tokens + part.tokens - 1);
      end = last == UINT64_MAX ? 0 : last + 1;
    }
    // Tokens before the first document of the file belong to the last document of the previous
    // file. In the first part of the stream they are a document of their own.
    const bool begins_inside = part.skipped_tokens < file.first || file.documents == 0;
    part.head = begins_inside && (part.first_token == 0);
    if (end < part.skipped_documents) {
      throw wrong_index(file.path, "its offsets contradict each other")
          .hint("offsets must not decrease; write the index again");
    }
    part.first_document = documents_;
    part.documents = end - part.skipped_documents + (part.head ? 1 : 0);
    documents_ += part.documents;
  }
}

}  // namespace evenkeel
