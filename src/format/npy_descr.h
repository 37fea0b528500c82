// The element type that the `descr` of an NPY header names.
#pragma once

#include "evenkeel/dtype.h"
#include "format/literal.h"

namespace evenkeel {

struct Element {
  DType dtype;
  bool big_endian = false;
  // False for numbers that DType does not have (long doubles, 8-bit floats). dtype is then a record
  // of their size, which a caller may request by name.
  bool supported = true;
};

// Text ('S', 'U'), dates ('M', 'm'), 'V' and structured types become records: opaque bytes, exactly
// as stored. Throws LiteralError, also for objects: they are pickles, which are never executed.
Element read_descr(const Literal& descr);

}  // namespace evenkeel
