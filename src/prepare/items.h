// Reads files as a sequence of items, and writes items to files.
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

// A position in a sequence of items.
struct ItemPosition {
  std::uint64_t item = 0;    // the number of the next item
  std::uint64_t offset = 0;  // bytes before it
};

// Writer options for a file of such items.
struct ItemKind {
  ArrayWriterOptions array;
  std::optional<TokenWriterOptions> tokens;  // for token files
  std::uint64_t row_bytes = 0;               // for kRows
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
  virtual void seek_item(std::uint64_t item);         // may have to read the items before it
  virtual std::uint64_t bytes() const = 0;            // of all items
  virtual std::uint64_t estimated_items() const = 0;  // exact except for lines
  virtual std::uint64_t item_bytes() const = 0;       // of each item; 0 if they differ

  // Identifies the items: changes if a file or an option of the input changes.
  const std::string& fingerprint() const { return fingerprint_; }
  ItemKind kind;
  // Throws Error (kInvalid) if the output would replace an input.
  void require_apart_from(const std::string& output, const std::string& format) const;

 protected:
  friend std::unique_ptr<ItemSource> open_items(const ItemInput& input, const Budget& budget,
                                                std::uint64_t memory, std::uint64_t group_bytes);
  friend std::unique_ptr<ItemSource> open_mixed(const ItemInput& input,
                                                const std::vector<WeightedFiles>& sets, bool repeat,
                                                const Budget& budget, std::uint64_t memory,
                                                const CountedBytes& counted);
  std::string fingerprint_;
  std::vector<std::string> files_;  // all files that are read, including indexes
};

// The usual unit for these files: blocks if their length is given, documents of token files, lines
// of text files, otherwise rows.
ItemUnit usual_unit(const ItemInput& input);

// `memory` bytes of the budget are for reading ahead. Rows are returned in groups of up to
// `group_bytes`, but at least one. Throws Error.
std::unique_ptr<ItemSource> open_items(const ItemInput& input, const Budget& budget,
                                       std::uint64_t memory, std::uint64_t group_bytes = 0);

class ItemSink {
 public:
  virtual ~ItemSink() = default;
  virtual void add(std::span<const std::byte> item) = 0;
  virtual bool joins() const = 0;  // several items may be added as one
  virtual void checkpoint(const std::string& state) = 0;
  virtual bool can_checkpoint() const = 0;       // false for objects on servers
  virtual const std::string& state() const = 0;  // of the checkpoint at which it continues
  virtual bool resumed() const = 0;              // whether it continues at a checkpoint
  virtual std::string how() const = 0;
  virtual void close() = 0;
  virtual void abort() noexcept = 0;
};

// Throws Error (kInvalid) if `create_items` would, so that errors show before long work.
void require_output(const std::string& path, const ItemKind& like, const std::string& format,
                    const WriteOptions& options);
// Creates a file for items like these. `format` is the token format; empty: the source's.
// `documents`: each item of tokens is a document in the index.
std::unique_ptr<ItemSink> create_items(const std::string& path, const ItemKind& like,
                                       const std::string& format, const WriteOptions& options,
                                       bool documents = true);

// The state of the last checkpoint of work that no longer needs its scratch files: only the output
// must still be renamed. `kind` identifies the work.
std::string done_state(const std::string& kind, const WorkReport& report);
bool is_done(const ItemSink& sink, const std::string& kind);
// If the work is done, renames the output and fills in the report. Returns whether it was done.
bool close_if_done(ItemSink& sink, const std::string& kind, WorkReport& report);

}  // namespace evenkeel
