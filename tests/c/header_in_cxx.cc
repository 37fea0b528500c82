// The header of the C interface is valid C++ by itself, also of C++11.
#include <evenkeel/evenkeel.h>

static_assert(EVENKEEL_OK == 0, "callers compare with zero");
