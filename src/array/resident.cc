#include "array/resident.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>

#include "array/row_extents.h"
#include "base/checked.h"
#include "base/sys.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kMostPages = 64;

}  // namespace

bool rows_are_resident(const Array::Impl& array, std::uint64_t first, std::uint64_t count) {
  const Layout& layout = array.layout;
  if (layout.fortran || count == 0 || first >= layout.rows || count > layout.rows - first) {
    return false;
  }
  const std::shared_ptr<Engine> engine = array.engine();
  std::uint64_t taken;
  const Piece piece = piece_of(layout, 0, first, count, nullptr, taken);
  if (taken < count) return false;
  const std::byte* base = engine->mapped(piece.file);
  if (!base) return false;
  const auto address = reinterpret_cast<std::uintptr_t>(base + piece.offset);
  const std::uint64_t page = sys::page_size();
  const std::uint64_t begin = round_down(address, page);
  const std::uint64_t end = round_up(address + piece.length, page);
  if (end - begin > kMostPages * page) return false;
  std::array<unsigned char, kMostPages> pages;
  if (::mincore(reinterpret_cast<void*>(begin), end - begin, pages.data()) != 0) return false;
  const auto used = static_cast<std::ptrdiff_t>((end - begin) / page);
  return std::all_of(pages.begin(), pages.begin() + used, [](unsigned char p) { return p & 1; });
}

}  // namespace evenkeel
