// One file, or one object on a server, at the moment of opening: which file it is and how it
// begins.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/fd.h"
#include "base/kept_file.h"
#include "format/layout.h"
#include "remote/object.h"

namespace evenkeel {

// What fstat says of the descriptor that is read. Throws Error (kSystem).
FileIdentity identify(int fd, const std::string& path);

struct Source {
  std::string path;
  std::shared_ptr<const Fd> fd;  // empty for a URL
  FileIdentity identity;
  std::shared_ptr<const RemoteObject> remote = {};  // for a URL

  // Bytes offset .. offset+length-1, fewer where the file ends before.
  std::string read(std::uint64_t offset, std::size_t length) const;
  // The file as one segment of an array. Its first row is set when segments are put together.
  Segment segment(std::uint64_t data_offset, std::uint64_t rows) const;
};

constexpr std::size_t kHeadBytes = 4096;  // one page: nearly every header, in one read

// Opens a regular file, or the object that a URL names. Throws Error.
Source open_even_empty(const std::string& path);
// The same, and refuses an empty file.
Source open_source(const std::string& path);

}  // namespace evenkeel
