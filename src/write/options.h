// What the options of writers mean for the files they write.
#pragma once

#include <string>

#include "evenkeel/write.h"
#include "write/file_writer.h"

namespace evenkeel {

inline FileWriterOptions file_options(const WriteOptions& options) {
  return {.budget = options.budget,
          .checksums = options.checksums,
          .resume = options.resume,
          .while_waiting = options.while_waiting,
          .expected_bytes = options.expected_bytes};
}

// Throw Error (kInvalid) where a writer could not be made of these, before anything is done.
void require_writable(const std::string& path, const ArrayWriterOptions& options);
void require_writable(const std::string& path, const TokenWriterOptions& options);

// Throws Error (kInvalid) when a checkpoint is of something else.
inline void require_kind(const std::string& path, const Checkpoint& found,
                         const std::string& kind) {
  if (found.kind == kind) return;
  throw Error(
      ErrorKind::kInvalid, "resume",
      "the checkpoint is of \"" + found.kind + "\", this writer would write \"" + kind + "\"")
      .in(path)
      .hint("use the options of the first run, or begin again without resume");
}

}  // namespace evenkeel
