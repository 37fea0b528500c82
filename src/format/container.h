// Files that hold several arrays: tables, archives, images with parts. Each reader answers which
// bytes belong to an array; see docs/formats.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/error.h"
#include "format/npy.h"
#include "format/part.h"

namespace evenkeel {

// An array of a container. `refused` says why it cannot be read here; then the rest may be empty.
struct Member {
  std::string name;
  std::string type;  // "float32", "list of int64"
  std::vector<std::uint64_t> shape = {};
  bool list = false;  // rows of different lengths: two arrays, "NAME.values" and "NAME.offsets"
  std::string refused = {};
};

// Whether a file that begins with `head` is a container.
bool is_container(std::string_view head);
// "arrow", "npz", "fits", "nifti"; empty for others.
std::string_view container_kind(std::string_view head);
// What is in it. Throws Error (kFormat).
// `count_rows`: with the number of rows of tables, which takes a look at every batch.
std::vector<Member> members_of(const Source& source, std::string_view head, bool count_rows);
// The array called `name`; with an empty name, the only one. Throws Error (kFormat, kInvalid) that
// lists the names.
Part read_member(const Source& source, std::string_view head, const std::string& name);

// The files of a folder that Hugging Face `datasets` saved, in order; empty where it is no such
// folder. Throws Error (kFormat) for one that cannot be read.
std::vector<std::string> dataset_files(const std::string& folder);

// The error for a name that is not there, or that is missing where there are several.
Error no_such_member(const Source& source, const std::string& name,
                     const std::vector<Member>& members);
// "container.h" of each format.
bool is_arrow(std::string_view head);
std::vector<Member> arrow_columns(const Source& source, std::string_view head, bool count_rows);
Part read_arrow(const Source& source, std::string_view head, const std::string& name);

bool is_zip(std::string_view head);
std::vector<Member> npz_members(const Source& source);
Part read_npz(const Source& source, const std::string& name);
// The header of a member, for callers that know more element types.
NpyHeader npz_header(const Source& source, const std::string& name);

bool is_fits(std::string_view head);
std::vector<Member> fits_images(const Source& source);
Part read_fits(const Source& source, const std::string& name);

bool is_nifti(std::string_view head);
std::vector<Member> nifti_images(const Source& source, std::string_view head);
Part read_nifti(const Source& source, std::string_view head, const std::string& name);

}  // namespace evenkeel
