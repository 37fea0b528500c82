// Data that loaders read: sets joined to one stream of rows, and what tells data apart.
#pragma once

#include <string>
#include <vector>

#include "format/layout.h"

namespace evenkeel {

// The sets one after the other, as one layout. `what` names rows in the error for sets that do not
// store them alike: Error (kInvalid).
Layout joined_layout(const std::vector<const Layout*>& sets, const char* what);

// The same text for the same files wherever they lie: number of rows, dtype, and the names and
// sizes of the files. `what` names the rows: "tokens=1000 dtype=uint16 files=1 ...".
std::string fingerprint_of(const Layout& layout, const char* what);

}  // namespace evenkeel
