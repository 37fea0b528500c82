#include "meter/proc_maps.h"

#include <fcntl.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "base/text_file.h"
#include "meter/proc.h"

namespace evenkeel {
namespace {

// ioctl PROCMAP_QUERY on /proc/PID/maps, Linux 6.11; older headers lack it.
struct Query {
  std::uint64_t size, flags, address;                             // in
  std::uint64_t begin, end, vma_flags, page_size, offset, inode;  // out
  std::uint32_t device_major, device_minor, name_size, build_id_size;
  std::uint64_t name, build_id;
};
constexpr unsigned long kQuery = _IOWR('f', 17, Query);
constexpr std::uint64_t kCoveringOrNext = 0x10;
constexpr std::uint64_t kWritable = 0x02, kExecutable = 0x04, kShared = 0x08;

std::uint64_t device_number(std::uint64_t high, std::uint64_t low) { return high << 32 | low; }

// Removes a hexadecimal number and the character after it from the beginning of the text.
bool take_hex(std::string_view& text, std::uint64_t& out, char after) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out, 16);
  if (error != std::errc{} || end == text.data() + text.size() || *end != after) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()) + 1);
  return true;
}

}  // namespace

// 7f0000000000-7f0000200000 r--s 00000000 fe:00 1234                       /data/train.bin
std::optional<MapsLine> parse_maps_line(std::string_view line) {
  Vma vma;
  if (!take_hex(line, vma.range.begin, '-') || !take_hex(line, vma.range.end, ' ')) return {};
  if (line.size() < 5 || line[4] != ' ') return {};
  vma.writable = line[1] == 'w';
  vma.executable = line[2] == 'x';
  vma.shared = line[3] == 's';
  line.remove_prefix(5);
  std::uint64_t high, low;
  if (!take_hex(line, vma.offset, ' ') || !take_hex(line, high, ':') || !take_hex(line, low, ' ')) {
    return {};
  }
  const auto inode = leading_number(line);
  if (!inode) return {};
  vma.device = device_number(high, low);
  vma.inode = *inode;
  line.remove_prefix(std::min(line.find(' '), line.size()));
  line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
  return MapsLine{vma, line};
}

std::string unescape_newlines(std::string_view path) {
  std::string out(path);
  for (std::size_t at = 0; (at = out.find("\\012", at)) != std::string::npos; ++at) {
    out.replace(at, 4, "\n");
  }
  return out;
}

Maps::Maps(pid_t pid) : pid_(pid), maps_(open_proc(pid, "maps")) {}

std::vector<Vma> Maps::in(AddressRange range) const {
  if (auto found = by_query(range)) return *std::move(found);
  return by_text(range);
}

std::optional<std::vector<Vma>> Maps::by_query(AddressRange range) const {
  std::vector<Vma> found;
  for (std::uint64_t at = range.begin; at < range.end;) {
    Query query{};
    query.size = sizeof query;
    query.flags = kCoveringOrNext;
    query.address = at;
    if (::ioctl(maps_.get(), kQuery, &query) != 0) {
      if (errno == ENOENT) break;  // no mapping at or after this address
      return std::nullopt;
    }
    if (query.begin >= range.end) break;
    found.push_back({{query.begin, query.end},
                     query.offset,
                     device_number(query.device_major, query.device_minor),
                     query.inode,
                     (query.vma_flags & kShared) != 0,
                     (query.vma_flags & kWritable) != 0,
                     (query.vma_flags & kExecutable) != 0});
    at = query.end;
  }
  return found;
}

std::vector<Vma> Maps::by_text(AddressRange range) const {
  std::vector<Vma> found;
  const auto text = read_text_file(proc_path(pid_, "maps"));
  std::string_view rest = text ? std::string_view(*text) : std::string_view();
  for (std::string_view line; take_line(rest, line);) {
    const auto parsed = parse_maps_line(line);
    if (!parsed) continue;
    const Vma& vma = parsed->vma;
    if (vma.range.begin < range.end && vma.range.end > range.begin) found.push_back(vma);
  }
  return found;
}

bool covers(const std::vector<Vma>& found, AddressRange range, const Vma& wanted) {
  std::uint64_t at = range.begin;
  for (const Vma& vma : found) {
    if (vma.range.begin > at || vma.inode != wanted.inode || vma.device != wanted.device ||
        vma.shared != wanted.shared ||
        vma.offset - vma.range.begin != wanted.offset - wanted.range.begin) {
      return false;
    }
    at = vma.range.end;
  }
  return wanted.inode != 0 && at >= range.end;
}

}  // namespace evenkeel
