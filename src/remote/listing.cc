#include "remote/listing.h"

#include <fnmatch.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <utility>

#include "evenkeel/error.h"
#include "remote/answers.h"
#include "remote/opening.h"
#include "remote/xml.h"

namespace evenkeel {
namespace {

class PageTransfer final : public TextTransfer {
 public:
  PageTransfer(const Address& bucket, QueryFields fields, std::shared_ptr<Store> store)
      : TextTransfer(bucket.text(), std::move(store)),
        bucket_(bucket),
        fields_(std::move(fields)) {}
  HttpRequest request() override { return store_->request(bucket_, fields_); }

 private:
  const Address bucket_;
  const QueryFields fields_;
};

std::vector<std::string> list_keys(RemoteOpening& opening, const Address& pattern) {
  const std::size_t meta = pattern.path.find_first_of("*?[");
  const std::string prefix = pattern.path.substr(0, meta);
  // If the pattern matches in one folder only, folders below it are not listed.
  const bool one_folder = pattern.path.find('/', meta) == pattern.path.npos;
  const std::shared_ptr<Store> store = opening.store_of(pattern);
  std::vector<std::string> keys;
  std::string token;
  std::set<std::string> tokens;  // all of them, to recognize a listing that goes in circles
  do {
    QueryFields fields = {{"list-type", "2"}, {"prefix", prefix}};
    if (one_folder) fields.emplace_back("delimiter", "/");
    if (!token.empty()) fields.emplace_back("continuation-token", token);
    PageTransfer transfer(pattern, std::move(fields), store);
    opening.transfers().run(transfer);
    ListingPage page;
    try {
      page = parse_listing(transfer.text());
    } catch (const XmlError& error) {
      throw Error(ErrorKind::kFormat, "open",
                  std::string("the server's listing is not well formed: ") + error.what())
          .in(pattern.text());
    }
    for (std::string& key : page.keys) {
      if (key == pattern.path) return {std::move(key)};
      if (matches_pattern(pattern.path, key)) keys.push_back(std::move(key));
    }
    if (!page.next.empty() && !tokens.insert(page.next).second) {
      throw Error(ErrorKind::kFormat, "open", "the server's listing does not end")
          .in(pattern.text());
    }
    token = std::move(page.next);
  } while (!token.empty());
  return keys;
}

}  // namespace

ListingPage parse_listing(std::string_view xml) {
  ListingPage page;
  XmlReader reader(xml);
  bool is_listing = false, truncated = false;
  while (reader.next()) {
    if (reader.path() == "ListBucketResult/Contents/Key") page.keys.push_back(reader.text());
    if (reader.path() == "ListBucketResult/NextContinuationToken") page.next = reader.text();
    if (reader.path() == "ListBucketResult/IsTruncated") truncated = reader.text() == "true";
    if (reader.path() == "ListBucketResult") is_listing = true;
  }
  if (!is_listing || truncated == page.next.empty()) {
    if (is_listing && !truncated) {  // a token that is not needed
      page.next.clear();
      return page;
    }
    throw Error(ErrorKind::kFormat, "open",
                is_listing ? "the server's listing has more pages, but no token for the next"
                           : "the server's answer is not a listing")
        .hint("the server must support ListObjectsV2");
  }
  return page;
}

bool matches_pattern(const std::string& pattern, const std::string& key) {
  return !key.ends_with('/') && ::fnmatch(pattern.c_str(), key.c_str(), FNM_PATHNAME) == 0;
}

std::vector<std::string> expand_url(const std::string& url_or_pattern) {
  const Address address = parse_address(url_or_pattern);
  if (!address.is_bucket()) {
    if (address.path.find('*') != address.path.npos) {
      throw Error(ErrorKind::kInvalid, "open", "a web server cannot be asked which files match")
          .in(url_or_pattern)
          .hint("list the URLs; patterns work with s3:// and gs://");
    }
    return {url_or_pattern};
  }
  if (address.path.find_first_of("*?[") == address.path.npos) return {url_or_pattern};
  RemoteOpening own;
  RemoteOpening& opening = *RemoteOpening::current();
  std::vector<std::string> urls;
  for (std::string& key : list_keys(opening, address)) {
    Address one = address;
    one.path = std::move(key);
    urls.push_back(one.text());
  }
  if (urls.empty()) {
    throw Error::system("open", ENOENT, "no object matches the pattern")
        .in(url_or_pattern)
        .hint("check the spelling; * does not cross folders");
  }
  std::ranges::sort(urls);
  return urls;
}

}  // namespace evenkeel
