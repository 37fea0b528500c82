// The library's one thread in a guarded process: it carries out the tool's commands.
#pragma once

namespace evenkeel::preload {

// 0, or why it cannot be started (an errno). The agent starts one only.
int start_command_thread();

}  // namespace evenkeel::preload
