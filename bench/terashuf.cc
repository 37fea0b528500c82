// The method of terashuf (github.com/alexandres/terashuf), for bench/prepare.py: as much as fits
// memory is read, shuffled and written to a temporary file; then items are taken from the temporary
// files, each with a probability proportional to what is left of it.
//
//     terashuf IN OUT ROW_BYTES MEMORY_MIB      ROW_BYTES 0: lines of text
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <utility>
#include <vector>

namespace {

struct Run {
  std::FILE* file;
  std::uint64_t items;
};

// In the current folder, which is on the disk that is measured: std::tmpfile would use /tmp.
std::FILE* temporary_file() {
  char name[] = "terashuf-XXXXXX";
  const int fd = mkstemp(name);
  if (fd < 0) return nullptr;
  unlink(name);
  return fdopen(fd, "w+b");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) return 2;
  std::FILE* in = std::fopen(argv[1], "rb");
  std::FILE* out = std::fopen(argv[2], "wb");
  const std::size_t row = std::strtoul(argv[3], nullptr, 10);
  const std::size_t memory = std::strtoul(argv[4], nullptr, 10) << 20;
  if (!in || !out) return 1;
  std::mt19937_64 random(1);
  std::vector<char> text(memory * 3 / 4);
  std::vector<std::pair<std::uint32_t, std::uint32_t>> items;  // place and length
  items.reserve(memory / 4 / sizeof items[0]);
  std::vector<Run> runs;
  std::size_t have = 0;
  for (bool end = false; !end;) {
    const std::size_t got = std::fread(text.data() + have, 1, text.size() - have, in);
    end = got == 0;
    have += got;
    if (end && have > 0 && row == 0 && text[have - 1] != '\n') text[have++] = '\n';
    std::size_t at = 0;
    items.clear();
    while (at < have && items.size() < items.capacity()) {
      std::size_t length = row;
      if (row == 0) {
        const void* newline = std::memchr(text.data() + at, '\n', have - at);
        if (!newline) break;
        length = static_cast<const char*>(newline) - (text.data() + at) + 1;
      } else if (at + row > have) {
        break;
      }
      items.emplace_back(at, length);
      at += length;
    }
    if (items.empty()) break;
    for (std::size_t i = items.size() - 1; i > 0; --i)
      std::swap(items[i], items[random() % (i + 1)]);
    std::FILE* file = temporary_file();
    if (!file) return 1;
    for (const auto& [place, length] : items) std::fwrite(text.data() + place, 1, length, file);
    std::rewind(file);
    runs.push_back({file, items.size()});
    have -= at;
    std::memmove(text.data(), text.data() + at, have);
    end = end && have == 0;
  }
  text = {};
  std::uint64_t left = 0;
  for (const Run& run : runs) {
    left += run.items;
    std::setvbuf(run.file, nullptr, _IOFBF, 1 << 20);
  }
  std::setvbuf(out, nullptr, _IOFBF, 4 << 20);
  std::string buffer(row, 0);
  char* line = nullptr;
  std::size_t room = 0;
  for (; left > 0; --left) {
    std::uint64_t choice = random() % left;
    std::size_t i = 0;
    while (choice >= runs[i].items) choice -= runs[i++].items;
    --runs[i].items;
    if (row > 0) {
      if (std::fread(buffer.data(), 1, row, runs[i].file) != row) return 1;
      std::fwrite(buffer.data(), 1, row, out);
    } else {
      const ssize_t length = getline(&line, &room, runs[i].file);
      if (length < 0) return 1;
      std::fwrite(line, 1, static_cast<std::size_t>(length), out);
    }
  }
  std::fflush(out);
  return fsync(fileno(out)) == 0 && !std::ferror(out) ? 0 : 1;
}
