#include "format/container.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "base/visible.h"
#include "evenkeel/bytes.h"

namespace evenkeel {
namespace {

constexpr std::uint64_t kMostState = 4_MiB;
constexpr std::size_t kNamesShown = 12;

bool is_folder_of_files(const std::string& path) {
  struct stat status;
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

bool is_file(const std::string& path) {
  struct stat status;
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

JsonValue read_json(const std::string& path) {
  const Source source = open_source(path);
  if (source.identity.size > kMostState) {
    throw Error(ErrorKind::kFormat, "open",
                "it has " + with_commas(source.identity.size) + " bytes")
        .in(path)
        .hint("this may not be the file of a dataset");
  }
  return parse_json(source.read(0, source.identity.size)).value_or(JsonValue());
}

// Throws for a folder of a format that only the Python package reads. `prefix` ends with a slash.
void refuse_folder_for_python(const std::string& folder, const std::string& prefix) {
  for (const auto& [file, format] : {std::pair(".zarray", "a Zarr array"),
                                     {".zgroup", "a Zarr group"},
                                     {"zarr.json", "a Zarr array or group"},
                                     {"index.json", "shards of MosaicML MDS or litData"}}) {
    if (!is_file(prefix + file)) continue;
    throw Error(ErrorKind::kInvalid, "open",
                std::string("this folder looks like ") + format + ", which C++ does not read")
        .in(folder)
        .hint("from Python: evenkeel.open(path)");
  }
}

// Adds the path to errors of parsers that do not know it.
template <class Read>
auto named(const Source& source, const Read& read) {
  try {
    return read();
  } catch (Error& error) {
    if (!error.path().empty()) throw;
    throw std::move(error).in(source.path);
  }
}

}  // namespace

std::string_view container_kind(std::string_view head) {
  if (is_arrow(head)) return "arrow";
  if (is_zip(head)) return "npz";
  if (is_fits(head)) return "fits";
  return is_nifti(head) ? "nifti" : "";
}

bool is_container(std::string_view head) { return !container_kind(head).empty(); }

std::vector<Member> members_of(const Source& source, std::string_view head, bool count_rows) {
  return named(source, [&] {
    if (is_arrow(head)) return arrow_columns(source, head, count_rows);
    if (is_zip(head)) return npz_members(source);
    if (is_fits(head)) return fits_images(source);
    return nifti_images(source, head);
  });
}

Part read_member(const Source& source, std::string_view head, const std::string& name) {
  return named(source, [&] {
    if (is_arrow(head)) return read_arrow(source, head, name);
    if (is_zip(head)) return read_npz(source, name);
    if (is_fits(head)) return read_fits(source, name);
    return read_nifti(source, head, name);
  });
}

Error no_such_member(const Source& source, const std::string& name,
                     const std::vector<Member>& members) {
  std::string names;
  for (std::size_t i = 0; i < std::min(members.size(), kNamesShown); ++i) {
    const Member& member = members[i];
    names += (i ? ", " : "") + visible(member.name);
    if (!member.type.empty()) names += " (" + member.type + ")";
  }
  if (members.size() > kNamesShown) {
    names += ", and " + with_commas(members.size() - kNamesShown) + " more";
  }
  const std::string there = members.empty() ? "there are no arrays in it" : "it holds " + names;
  if (name.empty()) {
    return Error(ErrorKind::kInvalid, "open", "which array? " + there)
        .in(source.path)
        .hint("pass its name: name=\"...\" (--name)");
  }
  return Error(ErrorKind::kInvalid, "open", "there is no array \"" + visible(name) + "\": " + there)
      .in(source.path);
}

std::vector<std::string> dataset_files(const std::string& folder) {
  if (!is_folder_of_files(folder)) return {};
  const std::string prefix = folder.ends_with('/') ? folder : folder + '/';
  if (is_file(prefix + "dataset_dict.json")) {
    const JsonValue dictionary = read_json(prefix + "dataset_dict.json");
    std::string names;
    if (const JsonValue* splits = dictionary.find("splits", JsonValue::Kind::kList)) {
      for (const JsonValue& split : splits->list) {
        if (split.kind != JsonValue::Kind::kText) continue;
        names += (names.empty() ? "" : ", ") + visible(split.text);
      }
    }
    throw Error(ErrorKind::kInvalid, "open", "this folder holds several datasets: " + names)
        .in(folder)
        .hint("open one of them: " + prefix + names.substr(0, names.find(',')));
  }
  const std::string path = prefix + "state.json";
  if (!is_file(path)) {
    refuse_folder_for_python(folder, prefix);
    return {};
  }
  const JsonValue state = read_json(path);
  const auto fail = [&](const std::string& problem) {
    return Error(ErrorKind::kFormat, "open", "bad state of a dataset: " + problem).in(path);
  };
  const JsonValue* const data_files = state.find("_data_files", JsonValue::Kind::kList);
  if (!data_files) throw fail("it has no list \"_data_files\"");
  const JsonValue* const selection = state.find("_indices_files", JsonValue::Kind::kList);
  if (selection && !selection->list.empty()) {
    throw fail("it holds a selection of rows")
        .hint("save it again: datasets.load_from_disk(folder).flatten_indices().save_to_disk(new)");
  }
  std::vector<std::string> files;
  for (const JsonValue& entry : data_files->list) {
    const std::string name(entry.text_of("filename"));
    if (name.empty() || name == "." || name == ".." || name.find('/') != name.npos ||
        name.find('\0') != name.npos) {
      throw fail("\"" + printable(name) + "\" is not the name of a file beside it");
    }
    files.push_back(prefix + name);
  }
  if (files.empty()) throw fail("it names no file");
  return files;
}

}  // namespace evenkeel
