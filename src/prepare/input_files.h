// The files that items are read from: finding them, and detecting changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "evenkeel/error.h"
#include "evenkeel/prepare.h"

namespace evenkeel {

std::uint64_t file_size(const std::string& path);  // throws Error

// The given files and the files that belong to them: indexes, the other half of a pair.
std::vector<std::string> all_files(const ItemInput& input);
// A text that changes if a file or an option of the input changes.
std::string fingerprint_of(const ItemInput& input, const std::vector<std::string>& files);

// The element type of NPY files as in their headers, for types of which DType knows only the size.
// Empty for other files. Throws Error (kInvalid) if they differ.
std::string common_descr(const std::vector<std::string>& paths);

// Throws Error (kInvalid) if the output would replace an input. Creates nothing. `format` is the
// token format, empty for other files.
void require_other_files(const std::vector<std::string>& inputs, const std::string& output,
                         const std::string& format);

// Parses the state of a checkpoint: `kind`, `word`, then numbers, which are returned. With `count`,
// there must be that many. Empty if the state is anything else.
std::optional<std::vector<std::uint64_t>> state_numbers(const std::string& state,
                                                        const std::string& kind,
                                                        std::string_view word);
std::optional<std::vector<std::uint64_t>> state_numbers(const std::string& state,
                                                        const std::string& kind,
                                                        std::string_view word, std::size_t count);
// The error if --resume finds unfinished work of another kind.
Error other_work(const std::string& output);

}  // namespace evenkeel
