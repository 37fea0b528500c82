// The thread of the library in a guarded process. It carries out the tool's commands.
#pragma once

#include "process_guard/shared_table_layout.h"

namespace evenkeel::preload {

// Starts the thread for the commands in this entry. Returns 0, or an errno if it cannot be started.
// The thread inherits the caller's blocked signals. The agent starts only one thread.
int start_command_thread(shared_table::Process& process);

}  // namespace evenkeel::preload
