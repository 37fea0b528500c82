// Reads the XML subset that storage services use: elements and their text, without attributes or
// document types. Entities are the five predefined ones and numbers.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace evenkeel {

struct XmlError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Returns the elements in the order in which they end.
class XmlReader {
 public:
  explicit XmlReader(std::string_view xml) : rest_(xml) {}

  // Moves to the next element that ends; false at the end of the document. Throws XmlError if the
  // document is not well formed or is nested deeper than 16 levels.
  bool next();
  const std::string& path() const { return path_; }  // "ListBucketResult/Contents/Key"
  const std::string& text() const { return text_; }  // between its last tag and its end

 private:
  void take_text(std::string_view raw);
  bool take_tag();

  std::string_view rest_;
  std::vector<std::string> open_;
  std::string path_, text_, pending_;
  bool root_seen_ = false;
};

}  // namespace evenkeel
