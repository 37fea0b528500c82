// The library's one thread in a guarded process: it carries out the tool's commands.
#pragma once

#include "process_guard/shared_table_layout.h"

namespace evenkeel::preload {

// For the commands in this entry. 0, or why it cannot be started (an errno). The agent starts one
// only, with the signals blocked that the thread is to have blocked.
int start_command_thread(shared_table::Process& process);

}  // namespace evenkeel::preload
