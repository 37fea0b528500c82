// Raw binary files, as np.memmap reads them. They have no header, so the caller gives dtype and
// shape.
#pragma once

#include "format/part.h"

namespace evenkeel {

// options.dtype must be set. `alone`: this is the only file. Only then may the shape fix the first
// axis, and the file may be longer than the shape, as with np.memmap. Throws Error (kInvalid,
// kFormat).
Part read_raw(const Source& source, const FormatOptions& options, bool alone);

}  // namespace evenkeel
