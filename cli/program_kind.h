// What kind of program a command is: whether a library can be loaded into it.
#pragma once

#include <string>

namespace evenkeel::cli {

enum class ProgramKind {
  kDynamic,     // its loader takes LD_PRELOAD
  kStatic,      // has no loader
  kForeign,     // for another kind of processor or word size
  kPrivileged,  // setuid, setgid or with capabilities: its loader takes no LD_PRELOAD
  kUnknown,     // not found, not readable, not a program: starting it reports the error
};

struct Program {
  ProgramKind kind = ProgramKind::kUnknown;
  std::string path;  // of the program itself; for a script, of its interpreter
};

// Looks where a shell would look. Scripts are followed to their interpreters.
Program look_at_program(const std::string& command);

// The loader or interpreter that the command needs but that does not exist; empty: none is missing.
// For such a command the kernel reports that the command itself does not exist.
std::string missing_part(const std::string& command);

}  // namespace evenkeel::cli
