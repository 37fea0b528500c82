// NPZ: NPY files in a ZIP archive. Members that are stored without compression lie at known
// offsets. See docs/formats.md.
#include <algorithm>

#include "base/checked.h"
#include "evenkeel/bytes.h"
#include "format/container.h"
#include "format/npy.h"
#include "format/token_part.h"

namespace evenkeel {
namespace {

constexpr std::string_view kLocal("PK\3\4"), kCentral("PK\1\2"), kEnd("PK\5\6"), kEnd64("PK\6\6"),
    kLocator64("PK\6\7");
constexpr std::uint64_t kEndBytes = 22, kEnd64Bytes = 56, kLocator64Bytes = 20, kCentralBytes = 46,
                        kLocalBytes = 30, kLongestComment = 65535;
constexpr std::uint64_t kMostDirectory = 64_MiB;
constexpr std::uint64_t kLongestHeader = 1_MiB + 16;  // of an NPY file
constexpr std::uint32_t kInExtra = UINT32_MAX;        // the number is in the ZIP64 field

struct ZipEntry {
  std::string name;
  std::uint16_t flags = 0, method = 0;
  std::uint64_t compressed = 0, bytes = 0, local = 0;
};

Error bad_zip(const Source& source, std::uint64_t place, const std::string& problem) {
  return Error(ErrorKind::kFormat, "open", "bad ZIP archive: " + problem)
      .in(source.path)
      .at(place)
      .hint("the download or copy may be incomplete");
}

template <class T>
T field(std::string_view bytes, std::size_t place) {
  return load_number<T>(bytes.data() + place);
}

struct Directory {
  std::uint64_t place = 0, bytes = 0;
};

Directory find_directory(const Source& source) {
  const std::uint64_t size = source.identity.size;
  const std::uint64_t tail = std::min(size, kEndBytes + kLongestComment + kLocator64Bytes);
  const std::string bytes = source.read(size - tail, tail);
  const std::size_t end = bytes.rfind(kEnd);
  if (end == bytes.npos || bytes.size() - end < kEndBytes) {
    throw bad_zip(source, size, "it has no directory at its end");
  }
  Directory directory{field<std::uint32_t>(bytes, end + 16), field<std::uint32_t>(bytes, end + 12)};
  if (directory.place == kInExtra || directory.bytes == kInExtra) {
    const std::size_t locator = end < kLocator64Bytes ? bytes.npos : end - kLocator64Bytes;
    if (locator == bytes.npos || !std::string_view(bytes).substr(locator).starts_with(kLocator64)) {
      throw bad_zip(source, size, "it has no ZIP64 directory");
    }
    const auto place = field<std::uint64_t>(bytes, locator + 8);
    const std::string record =
        place <= size && size - place >= kEnd64Bytes ? source.read(place, kEnd64Bytes) : "";
    if (!record.starts_with(kEnd64)) throw bad_zip(source, size, "it has no ZIP64 directory");
    directory = {field<std::uint64_t>(record, 48), field<std::uint64_t>(record, 40)};
  }
  if (directory.place > size || directory.bytes > size - directory.place) {
    throw bad_zip(source, size, "its directory lies outside it");
  }
  if (directory.bytes > kMostDirectory) {
    throw bad_zip(source, size, "a directory of " + with_commas(directory.bytes) + " bytes");
  }
  return directory;
}

// The extra field has only the numbers that do not fit 32 bits, in the order of the header.
void read_zip64(const Source& source, ZipEntry& entry, std::string_view extra) {
  while (extra.size() >= 4) {
    const auto id = field<std::uint16_t>(extra, 0), length = field<std::uint16_t>(extra, 2);
    if (length > extra.size() - 4) break;
    std::string_view value = extra.substr(4, length);
    extra.remove_prefix(4 + std::size_t{length});
    if (id != 1) continue;
    for (std::uint64_t* number : {&entry.bytes, &entry.compressed, &entry.local}) {
      if (*number != kInExtra) continue;
      if (value.size() < 8) throw bad_zip(source, entry.local, "a ZIP64 field is too short");
      *number = field<std::uint64_t>(value, 0);
      value.remove_prefix(8);
    }
  }
}

std::vector<ZipEntry> read_directory(const Source& source) {
  const Directory directory = find_directory(source);
  const std::string bytes = source.read(directory.place, directory.bytes);
  std::vector<ZipEntry> entries;
  for (std::string_view rest = bytes; rest.size() >= kCentralBytes;) {
    if (!rest.starts_with(kCentral)) {
      throw bad_zip(source, directory.place + bytes.size() - rest.size(), "a bad directory entry");
    }
    const std::size_t name = field<std::uint16_t>(rest, 28), extra = field<std::uint16_t>(rest, 30),
                      comment = field<std::uint16_t>(rest, 32);
    if (name + extra + comment > rest.size() - kCentralBytes) {
      throw bad_zip(source, directory.place + bytes.size() - rest.size(),
                    "a truncated directory entry");
    }
    ZipEntry entry{std::string(rest.substr(kCentralBytes, name)),
                   field<std::uint16_t>(rest, 8),
                   field<std::uint16_t>(rest, 10),
                   field<std::uint32_t>(rest, 20),
                   field<std::uint32_t>(rest, 24),
                   field<std::uint32_t>(rest, 42)};
    read_zip64(source, entry, rest.substr(kCentralBytes + name, extra));
    entries.push_back(std::move(entry));
    rest.remove_prefix(kCentralBytes + name + extra + comment);
  }
  return entries;
}

std::string shown_name(const ZipEntry& entry) {
  return entry.name.ends_with(".npy") ? entry.name.substr(0, entry.name.size() - 4) : entry.name;
}

std::string why_refused(const ZipEntry& entry) {
  if ((entry.flags & 1) != 0) return "it is encrypted";
  if (entry.method != 0) return "it is compressed; save it with numpy.savez";
  if (entry.bytes != entry.compressed) return "its two sizes differ";
  if (!entry.name.ends_with(".npy")) return "it is not an NPY file";
  return "";
}

// Where the bytes of an entry begin.
std::uint64_t data_of(const Source& source, const ZipEntry& entry) {
  const std::uint64_t size = source.identity.size;
  const std::string head =
      entry.local < size ? source.read(entry.local, kLocalBytes) : std::string();
  if (head.size() < kLocalBytes || !head.starts_with(kLocal)) {
    throw bad_zip(source, entry.local, "member \"" + printable(entry.name) + "\" is missing");
  }
  const std::uint64_t begin =
      entry.local + kLocalBytes + field<std::uint16_t>(head, 26) + field<std::uint16_t>(head, 28);
  if (begin > size || entry.bytes > size - begin) {
    throw bad_zip(source, entry.local,
                  "member \"" + printable(entry.name) + "\" ends beyond the end of the file");
  }
  return begin;
}

// A member, presented as a separate file to the reader of NPY headers.
struct NpyMember {
  Source source;
  std::uint64_t begin = 0;
  NpyHeader header;
};

NpyMember open_member(const Source& source, const ZipEntry& entry) {
  NpyMember member{source, data_of(source, entry), {}};
  member.source.path += '/' + printable(entry.name);
  member.source.identity.size = entry.bytes;
  std::string head = source.read(member.begin, std::min<std::uint64_t>(entry.bytes, kHeadBytes));
  if (!is_npy(head)) {
    throw Error(ErrorKind::kFormat, "open", "it is not an NPY file").in(member.source.path);
  }
  const std::uint64_t most = std::min(entry.bytes, kLongestHeader);
  if (head.size() < most && head.size() >= 12 &&
      (head[6] != 1 || field<std::uint16_t>(head, 8) + 10u > head.size())) {
    head = source.read(member.begin, most);
  }
  member.header = read_npy_header(member.source, head);
  return member;
}

const ZipEntry& find_entry(const Source& source, const std::vector<ZipEntry>& entries,
                           const std::string& name) {
  const ZipEntry* found = nullptr;
  for (const ZipEntry& entry : entries) {
    const bool wanted = entry.name == name || shown_name(entry) == name;
    if (wanted || (name.empty() && entries.size() == 1)) found = &entry;
  }
  if (!found) throw no_such_member(source, name, npz_members(source));
  const std::string refused = why_refused(*found);
  if (refused.empty()) return *found;
  throw Error(ErrorKind::kFormat, "open",
              "member \"" + printable(found->name) + "\" cannot be read in place: " + refused)
      .in(source.path);
}

}  // namespace

bool is_zip(std::string_view head) { return head.starts_with(kLocal) || head.starts_with(kEnd); }

std::vector<Member> npz_members(const Source& source) {
  std::vector<Member> members;
  for (const ZipEntry& entry : read_directory(source)) {
    Member member{shown_name(entry), "", {}, false, why_refused(entry)};
    if (member.refused.empty()) {
      try {
        const NpyHeader header = open_member(source, entry).header;
        member.type = header.element.dtype.name();
        member.shape = header.shape;
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::kFormat) throw;
        member.refused = error.what();  // the other members can still be read
      }
    }
    members.push_back(std::move(member));
  }
  return members;
}

NpyHeader npz_header(const Source& source, const std::string& name) {
  const std::vector<ZipEntry> entries = read_directory(source);
  return open_member(source, find_entry(source, entries, name)).header;
}

Part read_npz(const Source& source, const std::string& name) {
  const std::vector<ZipEntry> entries = read_directory(source);
  const NpyMember member = open_member(source, find_entry(source, entries, name));
  Part part = npy_part(member.source, member.header, {});
  part.format = "npz";
  part.segment.path = source.path;
  part.segment.identity = source.identity;
  part.segment.data_offset += member.begin;
  return part;
}

}  // namespace evenkeel
