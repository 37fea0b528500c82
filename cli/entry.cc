// The program. All else is in tool.cc, which tests can link without another main().
#include "cli/commands.h"

int main(int argc, char** argv) { return evenkeel::cli::run_tool(argc, argv); }
