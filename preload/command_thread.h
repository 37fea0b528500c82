// The one thread of a guarded process: it carries out what the tool orders.
#pragma once

namespace evenkeel::preload {

// 0, or why it cannot be started (an errno). For the agent, which sees to it that there is one
// only.
int start_order_thread();

}  // namespace evenkeel::preload
