// Data that loaders read: sets joined to one stream of rows, and fingerprints of data.
#pragma once

#include <string>
#include <vector>

#include "format/layout.h"

namespace evenkeel {

// The sets one after the other, as one layout. Throws Error (kInvalid) if they do not store rows
// the same way; `what` is the word for rows in that error.
Layout joined_layout(const std::vector<const Layout*>& sets, const char* what);

// A text that is the same for the same files in any folder: number of rows, dtype, and the names
// and sizes of the files. `what` is the word for rows: "tokens=1000 dtype=uint16 files=1 ...".
std::string fingerprint_of(const Layout& layout, const char* what);

}  // namespace evenkeel
