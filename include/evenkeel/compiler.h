// Checks that the compiler supports C++20. All other public headers include this one.
#pragma once

#if __cplusplus < 202002L
#error "Evenkeel needs C++20: compile with -std=c++20 or later"
#endif
