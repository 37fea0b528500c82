// The main program. The rest is in tool.cc, which tests can link without a second main().
#include "cli/commands.h"

int main(int argc, char** argv) { return evenkeel::cli::run_tool(argc, argv); }
