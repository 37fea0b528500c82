#!/usr/bin/env bash
# Installs a build to a new place and uses it from there, once through CMake and once through
# pkg-config, as a user's project would.
# usage: install_test.sh CMAKE BUILD_DIR COMPILER VERSION
set -euo pipefail
cmake=$1 build=$2 compiler=$3 version=$4
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
die() {
  echo "install_test: $1"
  exit 1
}
cd "$scratch"
prefix=$scratch/prefix

"$cmake" --install "$build" --prefix "$prefix" >install.log
"$prefix/bin/evenkeel" --version | grep -F "$version" ||
  { echo "the installed tool's --version does not say $version"; exit 1; }

"$cmake" -S "$here/consumer" -B consumer -DCMAKE_PREFIX_PATH="$prefix" \
  -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_BUILD_TYPE=Release >configure.log
"$cmake" --build consumer >build.log || { cat build.log; exit 1; }
./consumer/consumer

if command -v pkg-config >/dev/null; then
  PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name evenkeel.pc)")
  export PKG_CONFIG_PATH
  read -ra flags < <(pkg-config --cflags --libs evenkeel)
  # A static library needs libdl where dlopen is not in libc; the CMake package names it, too.
  if [ -n "$(find "$prefix" -name libevenkeel.a)" ] &&
    grep -rq 'INTERFACE_LINK_LIBRARIES.*;dl[;"]' "$prefix" --include=evenkeelTargets.cmake; then
    case " ${flags[*]} " in *" -ldl "*) ;; *) die "evenkeel.pc does not name libdl" ;; esac
  fi
  "$compiler" -std=c++20 "$here/consumer/main.cc" "${flags[@]}" \
    -Wl,-rpath,"$(pkg-config --variable=libdir evenkeel)" -o by_pkg_config
  ./by_pkg_config
  # From C: the linker of C is told about the library of C++, too.
  if command -v cc >/dev/null; then
    cc -std=c99 "$here/../examples/c/train_tokens.c" "${flags[@]}" \
      -Wl,-rpath,"$(pkg-config --variable=libdir evenkeel)" -o c_by_pkg_config
    ./c_by_pkg_config | grep -q '^100 steps, checksum' || die "the example in C does not run"
  fi
fi

# Compilers of C++17 are told what is wrong, first of all.
"$compiler" -std=c++17 -fsyntax-only -I"$prefix/include" "$here/consumer/main.cc" 2>errors.txt &&
  die "C++17 was accepted"
grep -m1 'error' errors.txt | grep -q 'Evenkeel needs C++20' ||
  { head -n 5 errors.txt; die "the first error for C++17 does not name C++20"; }

# What is installed may be moved: no file may name the place where it was built or first put.
if grep -rIl --include='*.cmake' --include='*.pc' --include='*.h' -e "$build" -e "$prefix" "$prefix"; then
  echo "the files above name the build's own folders"
  exit 1
fi

# And it goes without a trace.
"$cmake" -DMANIFEST="$build/install_manifest.txt" -P "$here/../cmake/uninstall.cmake"
[ -z "$(find "$prefix" ! -type d)" ] || { find "$prefix" ! -type d; die "files are left"; }
[ -z "$(find "$prefix" -name evenkeel)" ] || die "folders called evenkeel are left"
