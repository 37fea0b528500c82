// Helpers for tests that make files: a temporary folder, NPY bytes, the error of a call.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/error.h"
#include "format/layout.h"

namespace evenkeel {

class FileTest : public ::testing::Test {
 protected:
  FileTest() {
    std::string folder = (std::filesystem::temp_directory_path() / "evenkeel-XXXXXX").string();
    if (!::mkdtemp(folder.data())) throw std::runtime_error("no temporary folder");
    folder_ = folder;
  }
  ~FileTest() override { std::filesystem::remove_all(folder_); }

  std::string path(std::string_view name) const { return folder_ / name; }

  std::string write(std::string_view name, std::string_view bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }

  // The error from reading a file with these bytes; kClosed, which reading never throws, if the
  // file was accepted.
  Error refusal(std::string_view bytes, const FormatOptions& options = {}) const {
    return refusal_of({write("refused", bytes)}, options);
  }

  static Error refusal_of(const std::vector<std::string>& paths,
                          const FormatOptions& options = {}) {
    try {
      read_layout(paths, options);
    } catch (const Error& error) {
      return error;
    }
    return Error(ErrorKind::kClosed, "nothing", "it was accepted");
  }

 private:
  std::filesystem::path folder_;
};

// An NPY file with exactly this header text and `data` bytes after it.
inline std::string npy_file(std::string_view header, std::size_t data, int version = 1) {
  std::string bytes = "\x93NUMPY";
  bytes += {static_cast<char>(version), '\0'};
  for (int i = 0; i < (version == 1 ? 2 : 4); ++i) {
    bytes += static_cast<char>(header.size() >> (8 * i) & 255);
  }
  return bytes.append(header).append(data, 'x');
}

inline std::string npy_header(std::string_view descr, std::string_view shape,
                              bool fortran = false) {
  return "{'descr': " + std::string(descr) + ", 'fortran_order': " + (fortran ? "True" : "False") +
         ", 'shape': " + std::string(shape) + ", }\n";
}

}  // namespace evenkeel
