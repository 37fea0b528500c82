#include "array/resident.h"

#include <sys/mman.h>
#include <sys/vfs.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <set>

#include "array/row_extents.h"
#include "base/checked.h"
#include "base/kept_file.h"
#include "base/sys.h"
#include "engine/page_cache.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kMostPages = 64;

// Filesystems that never depend on another machine or process. Numbers as in statfs(2).
constexpr std::array<std::uint32_t, 8> kLocal = {
    0xEF53,      // ext2, ext3, ext4
    0x58465342,  // XFS
    0x9123683E,  // Btrfs
    0x01021994,  // tmpfs
    0x858458F6,  // ramfs
    0x794C7630,  // overlayfs
    0x2FC12FC1,  // ZFS
    0xF2F52010,  // F2FS
};

// The rows as one range of one file; empty if they are in several places.
std::optional<Piece> one_piece(const Layout& layout, std::uint64_t first, std::uint64_t count) {
  if (layout.fortran || count == 0 || first >= layout.rows || count > layout.rows - first) {
    return std::nullopt;
  }
  std::uint64_t taken;
  const Piece piece = piece_of(layout, 0, first, count, nullptr, taken);
  return taken == count ? std::optional(piece) : std::nullopt;
}

}  // namespace

bool on_local_filesystems(const Array::Impl& array) {
  std::set<std::uint64_t> seen;  // devices
  for (const Segment& segment : array.layout.segments) {
    if (!seen.insert(segment.identity.device).second) continue;
    struct statfs status {};
    if (::statfs(segment.path.c_str(), &status) != 0) return false;
    if (std::ranges::find(kLocal, static_cast<std::uint32_t>(status.f_type)) == kLocal.end()) {
      return false;
    }
  }
  return true;
}

bool read_if_resident(const Array::Impl& array, std::uint64_t first, std::uint64_t count,
                      std::span<std::byte> out) {
  const Layout& layout = array.layout;
  const std::optional<Piece> found = one_piece(layout, first, count);
  const Array::Impl::SettledEngine engine = array.engine_if_settled();
  if (!found || !engine) return false;
  const Piece& piece = *found;
  const std::byte* base = engine->mapped(piece.file);
  if (!base) return false;
  const auto address = reinterpret_cast<std::uintptr_t>(base + piece.offset);
  const std::uint64_t page = sys::page_size();
  const std::uint64_t begin = round_down(address, page);
  const std::uint64_t end = round_up(address + piece.length, page);
  if (end - begin > kMostPages * page) return false;
  std::array<unsigned char, kMostPages> pages;
  // mincore changes nothing, but its parameter is not const.
  std::byte* const from = const_cast<std::byte*>(base) + piece.offset - (address - begin);
  if (sys::mincore(from, end - begin, pages.data()) != 0) return false;
  const auto used = static_cast<std::ptrdiff_t>((end - begin) / page);
  const auto absent = [](unsigned char flags) { return (flags & 1) == 0; };
  if (std::any_of(pages.begin(), pages.begin() + used, absent)) return false;
  if (engine->pages_may_be_absent()) {
    // Lets the engine count page tables. No page is missing, so nothing is read.
    std::vector<FileRange> pending;
    const FileRange range{piece.file, piece.offset, piece.length};
    engine->request(std::span(&range, 1), pending);
    if (!pending.empty()) return false;  // evicted meanwhile
  } else {
    engine->count_mapped(piece.length);
  }
  std::memcpy(out.data(), base + piece.offset, piece.length);
  if (layout.swapped) swap_bytes(out.data(), piece.length, layout.dtype.swap_unit());
  note_work();
  return true;
}

bool known_in_memory(const Array::Impl& array, std::span<const std::uint64_t> rows) {
  const Array::Impl::SettledEngine engine = array.engine_if_settled();
  const Layout& layout = array.layout;
  // Only for a single file, because `mapped` must be called for each file before known_in_memory.
  if (!engine || !engine->pages_may_be_absent() || layout.fortran || layout.row_bytes == 0 ||
      layout.segments.size() != 1) {
    return false;
  }
  engine->mapped(0);
  std::array<FileRange, 256> ranges;
  for (std::size_t done = 0; done < rows.size();) {
    std::size_t used = 0;
    for (; used < ranges.size() && done < rows.size(); ++used, ++done) {
      if (rows[done] >= layout.rows) return false;
      std::uint64_t taken;
      const Piece piece = piece_of(layout, 0, rows[done], 1, nullptr, taken);
      ranges[used] = {piece.file, piece.offset, piece.length};
    }
    if (!engine->known_in_memory(std::span(ranges).first(used))) return false;
  }
  return true;
}

bool in_page_cache(const Array::Impl& array, std::uint64_t first, std::uint64_t count) {
  const std::optional<Piece> piece = one_piece(array.layout, first, count);
  if (!piece) return false;
  const std::shared_ptr<const KeptFile>& kept = array.layout.segments[piece->file].kept;
  return kept && is_cached(kept->fd(), piece->offset, piece->length);
}

}  // namespace evenkeel
