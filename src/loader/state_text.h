// The text of a loader's state: a magic string, fields "key=value" in a fixed order, and a
// description of the data.
#pragma once

#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>

#include "evenkeel/order.h"

namespace evenkeel {

// Parses the fields of a text one after the other. Throws Error (kInvalid) for a text that is not
// `kind` ("the state of a loader of rows").
class StateText {
 public:
  // `from` is the name of the function that returns such texts, for the hint of errors.
  StateText(const std::string& text, std::string_view magic, const char* kind, const char* from);

  std::string field(const std::string& key);
  std::uint64_t number(const std::string& key);
  BlockOptions blocks();
  std::string rest();

 private:
  [[noreturn]] void refuse(const std::string& problem) const;

  const std::string text_;
  const char* const from_;
  std::istringstream in_;
};

// " block_rows=404 window_blocks=512 streams=64"
std::string blocks_text(const BlockOptions& blocks);

// Throws Error (kInvalid) with the difference if a state and the loader that loads it differ.
void require_same(const char* what, const std::string& theirs, const std::string& ours);
inline void require_same(const char* what, std::uint64_t theirs, std::uint64_t ours) {
  require_same(what, std::to_string(theirs), std::to_string(ours));
}
// The same for streams, where turns of a mixture depend on them.
void require_same_streams(const BlockOptions& theirs, const BlockOptions& ours);

}  // namespace evenkeel
