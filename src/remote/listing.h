// Patterns for objects. Buckets are listed page by page.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace evenkeel {

// One page of ListObjectsV2.
struct ListingPage {
  std::vector<std::string> keys;
  std::string next;  // the token of the next page; empty: this was the last
};
// Throws XmlError, or Error (kFormat) if the XML is not a listing.
ListingPage parse_listing(std::string_view xml);

// Whether a key matches a pattern with * ? []; as with files, these do not match a /. A key that
// ends with / stands for a folder, as consoles and mounts create them, and matches nothing.
bool matches_pattern(const std::string& pattern, const std::string& key);

// The URLs that match an s3:// or gs:// pattern, sorted. If a key equals the pattern, only that key
// is returned. URLs without * ? [] and http addresses, which cannot be listed, are returned without
// a lookup. Throws Error (kSystem, ENOENT) if nothing matches.
std::vector<std::string> expand_url(const std::string& url_or_pattern);

}  // namespace evenkeel
