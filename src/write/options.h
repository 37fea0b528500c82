// Converts and checks the options of writers.
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

// Throw Error (kInvalid) if a writer with these options could not be created. Change nothing.
void require_writable(const std::string& path, const ArrayWriterOptions& options);
void require_writable(const std::string& path, const TokenWriterOptions& options);

// Throws Error (kInvalid) if the checkpoint is of another kind.
inline void require_kind(const std::string& path, const Checkpoint& found,
                         const std::string& kind) {
  if (found.kind == kind) return;
  throw Error(
      ErrorKind::kInvalid, "resume",
      "the checkpoint is for \"" + found.kind + "\", but this writer writes \"" + kind + "\"")
      .in(path)
      .hint("use the options of the first run, or begin again without resume");
}

}  // namespace evenkeel
