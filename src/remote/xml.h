// As much XML as the answers of storage services need: elements and their text, no attributes, no
// document types. Entities are the five of XML and numbers.
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace evenkeel {

struct XmlError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Goes through the elements in the order in which they end.
class XmlReader {
 public:
  explicit XmlReader(std::string_view xml) : rest_(xml) {}

  // The next element that ends; false at the end of the document. Throws XmlError for what is not
  // well formed or is nested deeper than 16.
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
