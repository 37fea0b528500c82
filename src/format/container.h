// Files that hold several arrays: tables, archives, images with parts. Each reader finds the bytes
// of an array; see docs/formats.md.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/error.h"
#include "format/npy.h"
#include "format/part.h"

namespace evenkeel {

// An array of a container. If it cannot be read, `refused` says why, and the rest may be empty.
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
// The arrays in a container. `count_rows` includes the number of rows of tables, for which every
// batch must be read. Throws Error (kFormat).
std::vector<Member> members_of(const Source& source, std::string_view head, bool count_rows);
// The array called `name`, or the only array if the name is empty. Throws Error (kFormat,
// kInvalid); the message lists the names.
Part read_member(const Source& source, std::string_view head, const std::string& name);

// The files of a folder that Hugging Face `datasets` saved, in order; empty for other folders.
// Throws Error (kFormat) if it cannot be read, and Error (kInvalid) for folders that only the
// Python package reads.
std::vector<std::string> dataset_files(const std::string& folder);

// The error for a name that does not exist, or for no name if there are several arrays.
Error no_such_member(const Source& source, const std::string& name,
                     const std::vector<Member>& members);

// The readers of each format.
bool is_arrow(std::string_view head);
std::vector<Member> arrow_columns(const Source& source, std::string_view head, bool count_rows);
Part read_arrow(const Source& source, std::string_view head, const std::string& name);

bool is_zip(std::string_view head);
std::vector<Member> npz_members(const Source& source);
Part read_npz(const Source& source, const std::string& name);
// The header of a member, for callers that know more element types than DType does.
NpyHeader npz_header(const Source& source, const std::string& name);

bool is_fits(std::string_view head);
std::vector<Member> fits_images(const Source& source);
Part read_fits(const Source& source, const std::string& name);

bool is_nifti(std::string_view head);
std::vector<Member> nifti_images(const Source& source, std::string_view head);
Part read_nifti(const Source& source, std::string_view head, const std::string& name);

}  // namespace evenkeel
