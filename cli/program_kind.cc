#include "cli/program_kind.h"

#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/fd.h"

namespace evenkeel::cli {
namespace {

bool is_program(const std::string& path) {
  struct stat status;
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) &&
         ::access(path.c_str(), X_OK) == 0;
}

std::string find_in_path(const std::string& command) {
  if (command.find('/') != std::string::npos) return command;
  const char* variable = std::getenv("PATH");
  std::string_view rest = variable != nullptr ? variable : "/bin:/usr/bin";
  for (;;) {
    const std::size_t end = rest.find(':');
    std::string path(rest.substr(0, end));
    if (path.empty()) path = ".";
    path.append("/").append(command);
    if (is_program(path)) return path;
    if (end == std::string_view::npos) return {};
    rest.remove_prefix(end + 1);
  }
}

bool has_more_rights(const std::string& path) {
  struct stat status;
  if (::stat(path.c_str(), &status) != 0) return false;
  const bool other_user = (status.st_mode & S_ISUID) != 0 && status.st_uid != ::geteuid();
  const bool other_group = (status.st_mode & S_ISGID) != 0 && status.st_gid != ::getegid();
  const bool capable =
      ::geteuid() != 0 && ::getxattr(path.c_str(), "security.capability", nullptr, 0) > 0;
  return other_user || other_group || capable;
}

// "#!/usr/bin/env -S python3 -u": the words of the first line.
std::vector<std::string> interpreter(std::string_view head) {
  std::vector<std::string> words;
  std::string_view line = head.substr(2, head.substr(2).find('\n'));
  while (!line.empty()) {
    const std::size_t begin = line.find_first_not_of(" \t");
    if (begin == std::string_view::npos) break;
    line.remove_prefix(begin);
    const std::string_view word = line.substr(0, line.find_first_of(" \t"));
    words.emplace_back(word);
    line.remove_prefix(word.size());
  }
  return words;
}

constexpr unsigned char kOurClass = sizeof(void*) == 8 ? ELFCLASS64 : ELFCLASS32;

// Classifies the program, and finds the program header that names its loader.
ProgramKind kind_of_elf(int fd, std::string_view head, Elf64_Phdr& loader) {
  Elf64_Ehdr header;
  if (head.size() < sizeof header) return ProgramKind::kUnknown;
  std::memcpy(&header, head.data(), sizeof header);
  Elf64_Ehdr ours{};
  const Fd self(::open("/proc/self/exe", O_RDONLY | O_CLOEXEC));
  if (::pread(self.get(), &ours, sizeof ours, 0) != sizeof ours) return ProgramKind::kUnknown;
  if (header.e_ident[EI_CLASS] != kOurClass || header.e_machine != ours.e_machine) {
    return ProgramKind::kForeign;
  }
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    const auto at = static_cast<off_t>(header.e_phoff + std::uint64_t{i} * header.e_phentsize);
    if (::pread(fd, &loader, sizeof loader, at) != sizeof loader) return ProgramKind::kUnknown;
    if (loader.p_type == PT_INTERP) return ProgramKind::kDynamic;
  }
  return ProgramKind::kStatic;
}

// An open file and its first bytes.
struct Opened {
  explicit Opened(const std::string& path)
      : fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    const ssize_t length = fd ? ::pread(fd.get(), buffer.data(), buffer.size(), 0) : 0;
    head = {buffer.data(), length > 0 ? static_cast<std::size_t>(length) : 0};
  }
  Opened(const Opened&) = delete;
  Fd fd;
  std::array<char, 4096> buffer;
  std::string_view head;
};

// Empty if there is none.
std::string loader_of(const Opened& program) {
  Elf64_Phdr part;
  if (!program.head.starts_with(ELFMAG) ||
      kind_of_elf(program.fd.get(), program.head, part) != ProgramKind::kDynamic) {
    return {};
  }
  std::array<char, 4096> name{};
  const std::size_t length = std::min<std::uint64_t>(part.p_filesz, name.size() - 1);
  if (::pread(program.fd.get(), name.data(), length, static_cast<off_t>(part.p_offset)) < 0) {
    return {};
  }
  return name.data();
}

constexpr int kMostScripts = 4;  // each the interpreter of the one before

Program look_at_path(const std::string& path, int depth) {
  const Opened program(path);
  const std::string_view head = program.head;
  if (head.starts_with("#!") && depth < kMostScripts) {
    const auto words = interpreter(head);
    if (words.empty()) return {ProgramKind::kUnknown, path};
    // env runs the first word that is neither an option nor a variable.
    if (words[0].ends_with("/env")) {
      for (std::size_t i = 1; i < words.size(); ++i) {
        if (words[i].starts_with('-') || words[i].find('=') != std::string::npos) continue;
        return look_at_path(find_in_path(words[i]), depth + 1);
      }
    }
    return look_at_path(words[0], depth + 1);
  }
  // Some systems let nobody read such a program (sudo with mode 4111).
  const bool may_be_elf = head.starts_with(ELFMAG) || !program.fd;
  if (may_be_elf && has_more_rights(path)) return {ProgramKind::kPrivileged, path};
  if (!head.starts_with(ELFMAG)) return {ProgramKind::kUnknown, path};
  Elf64_Phdr loader;
  return {kind_of_elf(program.fd.get(), head, loader), path};
}

}  // namespace

Program look_at_program(const std::string& command) {
  const std::string path = find_in_path(command);
  return path.empty() ? Program{} : look_at_path(path, 0);
}

std::string missing_part(const std::string& command) {
  std::string path = find_in_path(command);
  for (int depth = 0; depth <= kMostScripts; ++depth) {
    const Opened program(path);
    std::string needed = loader_of(program);
    const bool script = program.head.starts_with("#!");
    if (script) {
      const auto words = interpreter(program.head);
      if (!words.empty()) needed = words[0];
    }
    if (needed.empty()) return {};
    if (::access(needed.c_str(), F_OK) != 0) return needed;
    if (!script) return {};
    path = needed;
  }
  return {};
}

}  // namespace evenkeel::cli
