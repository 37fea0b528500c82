// Raw binary: no header, so the caller says what it holds. What np.memmap reads.
#pragma once

#include "format/part.h"

namespace evenkeel {

// options.dtype is set. `alone` says that this is the only file: then the first axis may be a
// number, and the file may be longer than that, as with np.memmap. Throws Error (kInvalid,
// kFormat).
Part read_raw(const Source& source, const FormatOptions& options, bool alone);

}  // namespace evenkeel
