#include "remote/xml.h"

#include <algorithm>
#include <cstdint>

namespace evenkeel {
namespace {

constexpr std::size_t kDeepest = 16;

void append_utf8(std::string& out, std::uint32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xc0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 0x3f));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xe0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 0x3f));
    out += static_cast<char>(0x80 | (c & 0x3f));
  } else {
    out += static_cast<char>(0xf0 | c >> 18);
    out += static_cast<char>(0x80 | (c >> 12 & 0x3f));
    out += static_cast<char>(0x80 | (c >> 6 & 0x3f));
    out += static_cast<char>(0x80 | (c & 0x3f));
  }
}

std::uint32_t entity_number(std::string_view digits) {
  const std::uint32_t base = digits.starts_with('x') ? 16 : 10;
  if (base == 16) digits.remove_prefix(1);
  std::uint32_t number = 0;
  if (digits.empty() || digits.size() > 8) throw XmlError("an entity that is not a number");
  for (const char c : digits) {
    const int digit = c >= '0' && c <= '9'                 ? c - '0'
                      : base == 16 && c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : base == 16 && c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                           : -1;
    if (digit < 0) throw XmlError("an entity that is not a number");
    number = number * base + static_cast<std::uint32_t>(digit);
    if (number > 0x10ffff) throw XmlError("an entity beyond Unicode");
  }
  if (number == 0 || (number >= 0xd800 && number < 0xe000)) {
    throw XmlError("an entity that is not a character");
  }
  return number;
}

void append_entity(std::string& out, std::string_view name) {
  if (name == "amp") {
    out += '&';
  } else if (name == "lt") {
    out += '<';
  } else if (name == "gt") {
    out += '>';
  } else if (name == "quot") {
    out += '"';
  } else if (name == "apos") {
    out += '\'';
  } else if (name.starts_with('#')) {
    append_utf8(out, entity_number(name.substr(1)));
  } else {
    throw XmlError("an entity that XML does not define");
  }
}

std::string local_name(std::string_view tag) {
  tag = tag.substr(0, tag.find_first_of(" \t\r\n"));
  const std::size_t colon = tag.find(':');
  if (colon != tag.npos) tag.remove_prefix(colon + 1);
  if (tag.empty()) throw XmlError("a tag without a name");
  return std::string(tag);
}

}  // namespace

void XmlReader::take_text(std::string_view raw) {
  while (!raw.empty()) {
    const std::size_t entity = std::min(raw.find('&'), raw.size());
    pending_ += raw.substr(0, entity);
    raw.remove_prefix(entity);
    if (raw.empty()) return;
    const std::size_t end = raw.find(';');
    if (end == raw.npos) throw XmlError("an entity without an end");
    append_entity(pending_, raw.substr(1, end - 1));
    raw.remove_prefix(end + 1);
  }
}

// Takes one tag from rest_, which begins with '<'. Returns whether an element ended.
bool XmlReader::take_tag() {
  const auto skip_past = [this](std::string_view end) {
    const std::size_t at = rest_.find(end);
    if (at == rest_.npos) throw XmlError("a tag without an end");
    const std::string_view inside = rest_.substr(0, at);
    rest_.remove_prefix(at + end.size());
    return inside;
  };
  if (rest_.starts_with("<!--")) return skip_past("-->"), false;
  if (rest_.starts_with("<![CDATA[")) {
    if (open_.empty()) throw XmlError("text outside the document");
    return pending_ += skip_past("]]>").substr(9), false;
  }
  if (rest_.starts_with("<?")) return skip_past("?>"), false;
  if (rest_.starts_with("<!")) throw XmlError("a document type");
  std::string_view tag = skip_past(">").substr(1);
  const bool closes = tag.starts_with('/'), empty = tag.ends_with('/') && !closes;
  if (closes) tag.remove_prefix(1);
  if (empty) tag.remove_suffix(1);
  const std::string name = local_name(tag);
  if (!closes) {
    if (open_.size() == kDeepest) throw XmlError("nested too deep");
    if (open_.empty() && root_seen_) throw XmlError("a second document");
    root_seen_ = true;
    open_.push_back(name);
    pending_.clear();
    if (!empty) return false;
  } else if (open_.empty() || open_.back() != name) {
    throw XmlError("a tag that was not open");
  }
  path_.clear();
  for (const std::string& part : open_) path_ += (path_.empty() ? "" : "/") + part;
  open_.pop_back();
  text_ = std::move(pending_);
  pending_.clear();
  return true;
}

bool XmlReader::next() {
  while (!rest_.empty()) {
    const std::size_t tag = std::min(rest_.find('<'), rest_.size());
    if (!open_.empty()) take_text(rest_.substr(0, tag));
    rest_.remove_prefix(tag);
    if (!rest_.empty() && take_tag()) return true;
  }
  if (!open_.empty()) throw XmlError("the document ends early");
  return false;
}

}  // namespace evenkeel
