# Compiles for an older glibc, for aarch64 or for musl with `ziglang` from PyPI. scripts/wheels sets:
#   EVENKEEL_ZIG       the program `zig`; beside it `zig-ar` and `zig-ranlib`
#   EVENKEEL_TARGET    x86_64-linux-gnu.2.28, aarch64-linux-gnu.2.28, x86_64-linux-musl
#   EVENKEEL_PACKAGES  a folder with the Debian packages that the build needs, unpacked. Not /usr: its
#                      headers are those of another libc
set(CMAKE_TRY_COMPILE_PLATFORM_VARIABLES EVENKEEL_ZIG EVENKEEL_TARGET EVENKEEL_PACKAGES)
string(REGEX MATCH "^[^-]+" CMAKE_SYSTEM_PROCESSOR ${EVENKEEL_TARGET})
set(CMAKE_SYSTEM_NAME Linux)
# Compiler flags are tested without linking: zig would compile its C++ library for that, unoptimised.
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)

set(CMAKE_C_COMPILER ${EVENKEEL_ZIG} cc -target ${EVENKEEL_TARGET})
set(CMAKE_CXX_COMPILER ${EVENKEEL_ZIG} c++ -target ${EVENKEEL_TARGET})
set(CMAKE_AR ${EVENKEEL_ZIG}-ar)
set(CMAKE_RANLIB ${EVENKEEL_ZIG}-ranlib)
set(CMAKE_CXX_COMPILER_LAUNCHER "")  # zig has its own cache

# zig adds -g by itself. -O3 and -s are for the first program that CMake links to identify the compiler: zig
# compiles its C++ library for that, and a library without optimisation or with debug information could not be
# reused.
set(CMAKE_CXX_FLAGS_INIT "-g0 -O3 -s")
set(CMAKE_EXE_LINKER_FLAGS_INIT "-s")
set(CMAKE_SHARED_LINKER_FLAGS_INIT "-s")
set(CMAKE_MODULE_LINKER_FLAGS_INIT "-s")
set(CMAKE_CXX_SCAN_FOR_MODULES OFF)  # there are none, and zig has no scanner for them

set(CMAKE_FIND_ROOT_PATH ${EVENKEEL_PACKAGES})
set(CMAKE_LIBRARY_ARCHITECTURE ${CMAKE_SYSTEM_PROCESSOR}-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
