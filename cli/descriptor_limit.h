// The limit on open files. The tool needs one descriptor for each guarded file and some for each
// process, so the usual soft limit of 1,024 is soon reached.
#pragma once

namespace evenkeel::cli {

// Raises the soft limit to the hard one.
void raise_descriptor_limit();

// In the child, before exec: the command begins with the limit that the tool was started with.
// Async-signal-safe. Does nothing if the limit was not raised.
void restore_descriptor_limit();

}  // namespace evenkeel::cli
