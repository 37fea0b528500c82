// The main program. The rest is in tool.cc, which tests can link without a second main().
#include <fcntl.h>
#include <unistd.h>

#include "cli/commands.h"

namespace {

// If stdin, stdout or stderr is closed, the next file that is opened would take its number, and
// messages would be written into that file. Opened for the wrong direction, /dev/null keeps the
// number, and reading or writing still fails with EBADF, as with a closed descriptor. Commands that
// are started get the closed descriptor (O_CLOEXEC).
void occupy_closed_streams() {
  for (const int number : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(number, F_GETFD) >= 0) continue;
    const int direction = number == STDIN_FILENO ? O_WRONLY : O_RDONLY;
    if (::open("/dev/null", direction | O_CLOEXEC) < 0) return;
  }
}

}  // namespace

int main(int argc, char** argv) {
  occupy_closed_streams();
  return evenkeel::cli::run_tool(argc, argv);
}
