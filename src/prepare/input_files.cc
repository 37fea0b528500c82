#include "prepare/input_files.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "base/fd.h"
#include "base/number.h"
#include "evenkeel/bytes.h"
#include "format/layout.h"
#include "format/npy.h"
#include "format/source.h"

namespace evenkeel {
namespace {

// The .bin and .idx of a pair.
std::vector<std::string> megatron_pair(const std::string& path) {
  const bool named = path.ends_with(".bin") || path.ends_with(".idx");
  const std::string base = named ? path.substr(0, path.size() - 4) : path;
  return {base + ".bin", base + ".idx"};
}

// The text of the literal that begins at `at`.
std::string literal_text(std::string_view text, std::size_t at) {
  int depth = 0;
  char quote = 0;
  for (std::size_t i = at; i < text.size(); ++i) {
    const char c = text[i];
    if (quote != 0) {
      if (c == '\\') {
        ++i;
      } else if (c == quote) {
        quote = 0;
      }
    } else if (c == '\'' || c == '"') {
      quote = c;
    } else if (c == '(' || c == '[' || c == '{') {
      ++depth;
    } else if (c == ')' || c == ']' || c == '}') {
      --depth;
    }
    if (depth == 0 && quote == 0) return std::string(text.substr(at, i + 1 - at));
  }
  return std::string(text.substr(at));
}

bool same_file(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

}  // namespace

std::uint64_t file_size(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) throw Error::system("open", errno).in(path);
  return static_cast<std::uint64_t>(status.st_size);
}

// The given files and the files that belong to them.
std::vector<std::string> all_files(const ItemInput& input) {
  std::vector<std::string> files;
  const auto add = [&](const std::string& path) {
    struct stat status {};
    if (::stat(path.c_str(), &status) == 0 && std::ranges::find(files, path) == files.end()) {
      files.push_back(path);
    }
  };
  for (const std::string& path : input.paths) {
    file_size(path);  // throws if it does not exist
    add(path);
    if (input.unit != ItemUnit::kDocuments && input.unit != ItemUnit::kBlocks) continue;
    for (const std::string& half : megatron_pair(path)) add(half);
    add(path + ".index");
  }
  return files;
}

std::string fingerprint_of(const ItemInput& input, const std::vector<std::string>& files) {
  const auto number = [](const auto& value) { return value ? std::to_string(*value) : "none"; };
  std::string text = "dtype " + (input.dtype ? input.dtype->name() : "none") + " shape";
  for (const std::int64_t axis : input.shape) text += " " + std::to_string(axis);
  text += " block " + std::to_string(input.block_tokens) + " bos " + number(input.bos) + " eos " +
          number(input.eos) + "\n";
  for (const std::string& path : files) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0) throw Error::system("open", errno).in(path);
    const FileIdentity identity(status);
    text +=
        path + " " + std::to_string(identity.size) + " " + std::to_string(identity.mtime_ns) + "\n";
  }
  return text;
}

std::string common_descr(const std::vector<std::string>& paths) {
  std::string common;
  for (const std::string& path : paths) {
    const Source source = open_source(path);
    const std::string head = source.read(0, 64_KiB);
    if (!is_npy(head)) return {};
    const NpyHeader header = read_npy_header(source, head);
    std::string descr;
    // The output is UTF-8, so Latin-1 is converted.
    for (const char c : literal_text(header.text, npy_descr(header).at)) {
      const auto byte = static_cast<unsigned char>(c);
      if (header.utf8 || byte < 128) {
        descr += c;
      } else {
        descr += static_cast<char>(0xc0 | byte >> 6);
        descr += static_cast<char>(0x80 | (byte & 0x3f));
      }
    }
    if (common.empty()) common = descr;
    if (descr == common) continue;
    std::string problem = "its elements are ";
    problem.append(descr).append(", those of the first file ").append(common);
    throw Error(ErrorKind::kInvalid, "open", problem)
        .in(path)
        .hint("files that are joined must have the same element type");
  }
  return common;
}

void require_other_files(const std::vector<std::string>& inputs, const std::string& output,
                         const std::string& format) {
  std::vector<std::string> outputs{output};
  if (format == "megatron") outputs = megatron_pair(output);
  if (format == "datatrove") outputs.push_back(output + ".index");
  for (const std::string& name : outputs) {
    for (const std::string& path : {name, name + ".partial"}) {
      struct stat in {
      }, out{};
      if (::stat(path.c_str(), &out) != 0) continue;
      for (const std::string& file : inputs) {
        if (::stat(file.c_str(), &in) != 0 || !same_file(in, out)) continue;
        throw Error(ErrorKind::kInvalid, "create", "this is an input, too")
            .in(path)
            .hint("write to another name, and rename it afterwards");
      }
    }
  }
}

std::optional<std::vector<std::uint64_t>> state_numbers(const std::string& state,
                                                        const std::string& kind,
                                                        std::string_view word) {
  std::string_view rest = state;
  if (!rest.starts_with(kind)) return std::nullopt;
  rest.remove_prefix(kind.size());
  if (!rest.starts_with(word)) return std::nullopt;
  rest.remove_prefix(word.size());
  std::vector<std::uint64_t> numbers;
  while (!rest.empty()) {
    const std::string_view text = rest.substr(0, rest.find(' '));
    const auto number = parse_number<std::uint64_t>(text);
    if (!number) return std::nullopt;
    numbers.push_back(*number);
    rest.remove_prefix(std::min(text.size() + 1, rest.size()));
  }
  return numbers;
}

std::optional<std::vector<std::uint64_t>> state_numbers(const std::string& state,
                                                        const std::string& kind,
                                                        std::string_view word, std::size_t count) {
  auto numbers = state_numbers(state, kind, word);
  if (numbers && numbers->size() != count) return std::nullopt;
  return numbers;
}

Error other_work(const std::string& output) {
  return Error(ErrorKind::kInvalid, "resume",
               "the unfinished work has other files, another unit, seed or format")
      .in(output)
      .hint("use the options of the first run, or begin again without --resume");
}

}  // namespace evenkeel
