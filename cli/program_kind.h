// What kind of program a command is: whether a library can be loaded into it.
#pragma once

#include <string>

namespace evenkeel::cli {

enum class ProgramKind {
  kDynamic,     // its loader takes LD_PRELOAD
  kStatic,      // has no loader
  kForeign,     // for another kind of processor or word size
  kPrivileged,  // setuid, setgid or with capabilities: its loader takes no LD_PRELOAD
  kUnknown,     // not found, not readable, no program: whoever starts it will say
};

struct Program {
  ProgramKind kind = ProgramKind::kUnknown;
  std::string path;  // of the program itself: for a script, of what runs it
};

// Looks where a shell would look. Scripts are followed to their interpreters.
Program look_at_program(const std::string& command);

// The loader or interpreter that it needs and that is not there; empty: none is missing. The kernel
// says of such a program that it is not there itself.
std::string missing_part(const std::string& command);

}  // namespace evenkeel::cli
