// The files that items are read from: which they are, and whether they are the same as before.
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

// The files that were named, and those that belong to them: indexes, the other half of a pair.
std::vector<std::string> all_files(const ItemInput& input);
// Changes when a file does, or what was said about it.
std::string fingerprint_of(const ItemInput& input, const std::vector<std::string>& files);

// The element type of NPY files as their headers have it, where DType only knows how long it is.
// Empty for other files. Throws Error (kInvalid) when they differ.
std::string common_descr(const std::vector<std::string>& paths);

// Throws Error (kInvalid) when a file that is read would be replaced. Nothing is created. `format`
// is that of tokens, empty for others.
void require_other_files(const std::vector<std::string>& inputs, const std::string& output,
                         const std::string& format);

// The numbers that follow `kind` in the state of a checkpoint, after `word`; empty unless the state
// is just that. There must be `count` of them, where it is given.
std::optional<std::vector<std::uint64_t>> state_numbers(const std::string& state,
                                                        const std::string& kind,
                                                        std::string_view word);
std::optional<std::vector<std::uint64_t>> state_numbers(const std::string& state,
                                                        const std::string& kind,
                                                        std::string_view word, std::size_t count);
// What --resume found on this output is of other work.
Error other_work(const std::string& output);

}  // namespace evenkeel
