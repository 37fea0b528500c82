// Paths are passed as bytes: they need not be valid text.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <vector>

namespace evenkeel::python {

inline std::string path_of(const nanobind::bytes& path) { return {path.c_str(), path.size()}; }

inline std::vector<std::string> paths_of(const std::vector<nanobind::bytes>& paths) {
  std::vector<std::string> out;
  for (const nanobind::bytes& path : paths) out.push_back(path_of(path));
  return out;
}

inline std::vector<nanobind::bytes> bytes_of(const std::vector<std::string>& paths) {
  std::vector<nanobind::bytes> out;
  for (const std::string& path : paths) out.emplace_back(path.data(), path.size());
  return out;
}

}  // namespace evenkeel::python
