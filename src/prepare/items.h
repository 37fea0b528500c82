// Files as a sequence of items, and items as a file.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "evenkeel/prepare.h"
#include "evenkeel/write.h"

namespace evenkeel {

// Where a sequence of items stands.
struct ItemPosition {
  std::uint64_t item = 0;    // of the next item
  std::uint64_t offset = 0;  // bytes before it
};

// What a file that holds such items is made like.
struct ItemKind {
  ArrayWriterOptions array;
  std::optional<TokenWriterOptions> tokens;  // of token files
  std::uint64_t row_bytes = 0;               // of kRows
};

// Called while lines are counted: bytes so far, and of all files.
using CountedBytes = std::function<void(std::uint64_t done, std::uint64_t all)>;

class ItemSource {
 public:
  virtual ~ItemSource() = default;
  // The next item, valid until the next call; empty after the last.
  virtual std::optional<std::span<const std::byte>> next() = 0;
  virtual ItemPosition position() const = 0;
  virtual void seek(const ItemPosition& position) = 0;
  virtual void seek_item(std::uint64_t item);         // reads those before it, where that is needed
  virtual std::uint64_t bytes() const = 0;            // of all items
  virtual std::uint64_t estimated_items() const = 0;  // exact, but for lines
  virtual std::uint64_t item_bytes() const = 0;       // of each; 0 where they differ

  // Which items these are: changes when a file does, or what was said about it.
  const std::string& fingerprint() const { return fingerprint_; }
  ItemKind kind;
  // Throws Error (kInvalid) when a file that is read would be replaced.
  void require_apart_from(const std::string& output, const std::string& format) const;

 protected:
  friend std::unique_ptr<ItemSource> open_items(const ItemInput& input, const Budget& budget,
                                                std::uint64_t memory, std::uint64_t group_bytes);
  friend std::unique_ptr<ItemSource> open_mixed(const ItemInput& input,
                                                const std::vector<WeightedFiles>& sets, bool repeat,
                                                const Budget& budget, std::uint64_t memory,
                                                const CountedBytes& counted);
  std::string fingerprint_;
  std::vector<std::string> files_;  // all that are read: also indexes
};

// What items of these files usually are, by the first file and by what is known about them: lines
// of text, documents of token files, blocks where their length is given, else rows.
ItemUnit usual_unit(const ItemInput& input);

// `memory` bytes of the budget are for reading ahead. Rows come in groups of up to `group_bytes`,
// at least one. Throws Error.
std::unique_ptr<ItemSource> open_items(const ItemInput& input, const Budget& budget,
                                       std::uint64_t memory, std::uint64_t group_bytes = 0);

class ItemSink {
 public:
  virtual ~ItemSink() = default;
  virtual void add(std::span<const std::byte> item) = 0;
  virtual bool joins() const = 0;  // several items may be added as one
  virtual void checkpoint(const std::string& state) = 0;
  virtual bool can_checkpoint() const = 0;       // an object on a server cannot
  virtual const std::string& state() const = 0;  // of the checkpoint it goes on from
  virtual bool resumed() const = 0;              // it goes on from one
  virtual std::string how() const = 0;
  virtual void close() = 0;
  virtual void abort() noexcept = 0;
};

// Throws Error (kInvalid) where `create_items` would: before work that takes long.
void require_output(const std::string& path, const ItemKind& like, const std::string& format,
                    const WriteOptions& options);
// A file for items of this source. `format` is that of tokens, empty: the source's. `documents`:
// each item of tokens is a document in the index.
std::unique_ptr<ItemSink> create_items(const std::string& path, const ItemKind& like,
                                       const std::string& format, const WriteOptions& options,
                                       bool documents = true);

// The last checkpoint of work that needs its scratch files no more: the output only has to get its
// name. `kind` says which work it is.
std::string done_state(const std::string& kind, const WorkReport& report);
bool is_done(const ItemSink& sink, const std::string& kind);
// Gives such an output its name, and fills in the report; false if it is not done.
bool close_if_done(ItemSink& sink, const std::string& kind, WorkReport& report);

}  // namespace evenkeel
