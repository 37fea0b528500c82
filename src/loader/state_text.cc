#include "loader/state_text.h"

#include "base/number.h"
#include "evenkeel/bytes.h"
#include "evenkeel/error.h"

namespace evenkeel {

StateText::StateText(const std::string& text, std::string_view magic, const char* kind,
                     const char* from)
    : text_(text), from_(from) {
  if (!text.starts_with(std::string(magic) + " ")) refuse(std::string("not ") + kind);
  in_.str(text.substr(magic.size() + 1));
}

void StateText::refuse(const std::string& problem) const {
  throw Error(ErrorKind::kInvalid, "state",
              problem + ": \"" + text_.substr(0, 60) + (text_.size() > 60 ? "...\"" : "\""))
      .hint(std::string("pass the text that ") + from_ + " returned, unchanged");
}

std::string StateText::field(const std::string& key) {
  std::string word;
  in_ >> word;
  if (!word.starts_with(key + "=")) refuse("the field " + key + " is missing");
  return word.substr(key.size() + 1);
}

std::uint64_t StateText::number(const std::string& key) {
  const auto number = parse_number<std::uint64_t>(field(key));
  if (!number) refuse(key + " is not a number");
  return *number;
}

BlockOptions StateText::blocks() {
  BlockOptions blocks;
  blocks.block_rows = number("block_rows");
  blocks.window_blocks = number("window_blocks");
  blocks.streams = number("streams");
  return blocks;
}

std::string StateText::rest() {
  std::string rest;
  std::getline(in_ >> std::ws, rest);
  return rest;
}

std::string blocks_text(const BlockOptions& blocks) {
  return " block_rows=" + std::to_string(blocks.block_rows) +
         " window_blocks=" + std::to_string(blocks.window_blocks) +
         " streams=" + std::to_string(blocks.streams);
}

void require_same(const char* what, const std::string& theirs, const std::string& ours) {
  if (theirs == ours) return;
  throw Error(ErrorKind::kInvalid, "load",
              std::string("the state belongs to other batches: its ") + what + " is " + theirs +
                  ", this loader's is " + ours)
      .hint("create the loader with the options of the state, or start from step 0");
}

void require_same_streams(const BlockOptions& theirs, const BlockOptions& ours) {
  if (theirs.streams == ours.streams) return;
  throw Error(ErrorKind::kInvalid, "load",
              "the state was taken with " + with_commas(theirs.streams) +
                  " streams of order \"blocks\", this loader has " + with_commas(ours.streams))
      .hint("create the loader with streams=" + std::to_string(theirs.streams) +
            "; the default follows from world and batch_size");
}

}  // namespace evenkeel
