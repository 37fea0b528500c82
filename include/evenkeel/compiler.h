// What the compiler must be able to do. The other public headers include this one first.
#pragma once

#if __cplusplus < 202002L
#error "Evenkeel needs C++20: compile with -std=c++20 or later"
#endif
