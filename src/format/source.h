// An open file, or an object on a server: its identity, and reads of its header.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/fd.h"
#include "base/kept_file.h"
#include "format/layout.h"

namespace evenkeel {

// The identity of an open file, from fstat. Throws Error (kSystem).
FileIdentity identify(int fd, const std::string& path);

struct Source {
  std::string path;
  std::shared_ptr<const Fd> fd;  // empty for a URL
  FileIdentity identity;
  std::shared_ptr<const RemoteObject> remote = {};  // for a URL

  // Bytes offset .. offset+length-1, fewer if the file ends before that.
  std::string read(std::uint64_t offset, std::size_t length) const;
  // Drops the pages that hold these bytes from the page cache: a header that is not read again
  // would displace data.
  void drop(std::uint64_t offset, std::uint64_t length) const;
  // The file as one segment of an array. first_row is set when segments are joined.
  Segment segment(std::uint64_t data_offset, std::uint64_t rows) const;
};

constexpr std::size_t kHeadBytes = 4096;  // one page: nearly every header, in one read

// Opens a regular file, or the object that a URL names. Throws Error.
Source open_even_empty(const std::string& path);
// Like open_even_empty, but an empty file is an error.
Source open_source(const std::string& path);

}  // namespace evenkeel
