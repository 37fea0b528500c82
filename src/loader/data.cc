#include "loader/data.h"

#include <filesystem>
#include <utility>

#include "base/visible.h"
#include "evenkeel/error.h"
#include "remote/address.h"

namespace evenkeel {
namespace {

// FNV-1a: simple, and the same on every machine.
std::uint64_t hash_names_and_sizes(const Layout& layout) {
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&](const std::string& text) {
    for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  };
  for (const Segment& segment : layout.segments) {
    add(segment.remote ? object_name(segment.path)
                       : std::filesystem::path(segment.path).filename().string());
    add("\n" + std::to_string(segment.identity.size) + "\n");
  }
  return hash;
}

// "uint16", "float32 x 162", "byte-swapped int32 x 3 x 4"
std::string describe_row(const Layout& layout) {
  std::string text = (layout.swapped ? "byte-swapped " : "") + layout.dtype.name();
  for (std::size_t axis = 1; axis < layout.shape.size(); ++axis) {
    text += " x " + std::to_string(layout.shape[axis]);
  }
  return text;
}

}  // namespace

Layout joined_layout(const std::vector<const Layout*>& sets, const char* what) {
  Layout all = *sets.front();
  all.segments.clear();
  all.stretches.clear();
  all.paths.clear();
  all.rows = 0;
  for (const Layout* layout : sets) {
    const bool same_order = layout->fortran == all.fortran || layout->shape.size() < 2;
    if (describe_row(*layout) != describe_row(all) || !same_order) {
      throw Error(ErrorKind::kInvalid, "mixture",
                  visible(layout->paths.front()) + " stores " + describe_row(*layout) + ", " +
                      visible(sets.front()->paths.front()) + " stores " + describe_row(all) +
                      (same_order ? "" : ", in C and in Fortran order"))
          .hint(std::string("the sets of a mixture must store ") + what + " in the same way");
    }
    if (!layout->stretches.empty() || !all.stretches.empty()) {
      all.spell_out_stretches();
      Layout more = *layout;
      more.spell_out_stretches();
      for (Stretch stretch : more.stretches) {
        stretch.first_row += all.rows;
        stretch.segment += static_cast<std::uint32_t>(all.segments.size());
        all.stretches.push_back(stretch);
      }
    }
    for (Segment segment : layout->segments) {
      segment.first_row += all.rows;
      all.segments.push_back(std::move(segment));
    }
    all.paths.insert(all.paths.end(), layout->paths.begin(), layout->paths.end());
    all.rows += layout->rows;
  }
  if (all.shape.empty()) all.shape = {0};
  all.shape[0] = all.rows;
  return all;
}

std::string fingerprint_of(const Layout& layout, const char* what) {
  std::uint64_t bytes = 0;
  for (const Segment& segment : layout.segments) bytes += segment.identity.size;
  return std::string(what) + "=" + std::to_string(layout.rows) + " dtype=" + layout.dtype.name() +
         " files=" + std::to_string(layout.segments.size()) + " bytes=" + std::to_string(bytes) +
         " names=" + std::to_string(hash_names_and_sizes(layout));
}

}  // namespace evenkeel
