#!/usr/bin/env bash
# Root filesystems in folders, for scripts/test_wheels: Debian without a compiler, its next release, and aarch64.
# shellcheck shell=bash disable=SC2016,SC2154  # inner shells expand single quotes; test_wheels sets work, dist, try, tools

# debian SUITE ARCH FOLDER PACKAGES: a small Debian, from packages that are unpacked and not configured: what runs
# is Python.
debian() {
  local suite=$1 arch=$2 root=$3 packages=$4 deb
  command -v debootstrap >/dev/null || apt-get -qq -y install --no-install-recommends debootstrap >&2 || return
  debootstrap --arch="$arch" --variant=minbase --foreign --include="$packages" "$suite" "$root" \
    http://deb.debian.org/debian /usr/share/debootstrap/scripts/sid >&2 || return
  for deb in "$root"/var/cache/apt/archives/*.deb; do dpkg-deb -x "$deb" "$root" || return; done
  mkdir -p "$root/work" "$root/dist" && chmod 1777 "$root/tmp" "$root/var/tmp" &&
    cp "$try" "$root/work/" && cp "$dist"/* "$root/dist/"
}

# enter ROOT COMMAND...: the mounts are in their own namespace, which always ends with the command. This script's
# namespace never sees /dev below $work, so removing $work cannot reach it. With EMULATE=1 programs of aarch64 run
# by qemu. Since Linux 6.7 a user namespace has its own binfmt_misc, so that of this machine does not change.
enter() {
  local -a how=(unshare --mount --propagation private)
  [ -z "${EMULATE-}" ] || how+=(--user --map-root-user)
  env -i PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin HOME=/work EMULATE="${EMULATE-}" \
    "${how[@]}" sh -ec '
      binfmt=/proc/sys/fs/binfmt_misc
      if [ -n "$EMULATE" ] && [ ! -e $binfmt/qemu-aarch64 ]; then
        mount -t binfmt_misc none $binfmt
        printf %s ":qemu-aarch64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:$(command -v qemu-aarch64-static):F" >$binfmt/register
      fi
      unset EMULATE
      mount --rbind /proc "$1/proc"
      mount --rbind /dev "$1/dev"
      exec chroot "$@"' enter "$@"
}

# wheels_for ROOT ARCH VERSION NAME...: wheels for its Python, downloaded here: the root has no network set up.
wheels_for() {
  local root=$1 arch=$2 version=$3
  shift 3
  "$tools/python" -m pip download --quiet --disable-pip-version-check --only-binary :all: -d "$root/dist" \
    --python-version "$version" --implementation cp --platform "manylinux_2_17_$arch" --platform "manylinux2014_$arch" \
    --platform "manylinux_2_27_$arch" --platform "manylinux_2_28_$arch" --platform "manylinux_2_12_$arch" "$@"
}

# in_root ROOT PYTHON [--emulated]: runs the commands of a new user: from nothing to a batch, then the longer
# program.
in_root() {
  enter "$1" /bin/sh -ec '
    python=$1
    shift
    for name in cc c++ gcc g++ clang clang++ make; do
      if command -v $name; then echo "there is a compiler"; exit 1; fi
    done
    cd /work
    begun=$(date +%s%N)
    rm -rf env
    $python -m venv --without-pip env
    PYTHONPATH=$(echo /dist/pip-*.whl) env/bin/python -m pip install --quiet --no-index --find-links /dist evenkeel
    env/bin/python -c "
import evenkeel, numpy
(numpy.arange(3_000_000) % 50257).astype(\"uint16\").tofile(\"first.bin\")
x, y = next(evenkeel.TokenLoader(evenkeel.tokens(\"first.bin\", budget=\"64MiB\"), 12, 1024))
print(x.shape, x.dtype)"
    taken=$(( ($(date +%s%N) - begun) / 1000000 ))
    times >cpu
    env/bin/python try_wheel.py "$@" >facts
    read -r load _ </proc/loadavg
    echo "$(tail -n 1 facts); from nothing to a batch: $taken ms ($(tail -n 1 cpu) of CPU, load $load)"
    [ -n "$*" ] || [ $taken -lt 15000 ] || [ "${load%.*}" -ge "$(nproc)" ]' sh "${@:2}"
}

native_root() {
  local root=$work/root-x86_64
  debian bookworm amd64 "$root" python3-minimal,python3-venv || return
  wheels_for "$root" x86_64 3.11 pip numpy scikit-build-core nanobind cmake ninja || return
  in_root "$root" python3
}

demo_in_root() {
  enter "$work/root-x86_64" /bin/sh -ec 'cd /work; env/bin/evenkeel demo --dir /work >shown; grep -c . shown >/dev/null
    grep -m 1 direct shown'
}

source_in_root() {
  local said
  if said=$(enter "$work/root-x86_64" /bin/sh -c 'cd /work; python3 -m venv --without-pip from-source
    PYTHONPATH=$(echo /dist/pip-*.whl) from-source/bin/python -m pip install --no-index --find-links /dist \
      --no-binary evenkeel evenkeel 2>&1'); then
    return 1
  fi
  grep -m 1 'CMAKE_CXX_COMPILER' <<<"$said" || { echo "$said" && return 1; }
}

run_root() {
  is_root || { skip root "Debian 12, no compiler" "needs root" && return; }
  need_tools
  step root "Debian 12, no compiler" native_root
  step root "evenkeel demo" demo_in_root
  step root "source package, no compiler" source_in_root
}

# Newer Pythons, from Debian's next release. The stable ABI promises that they accept the wheel of 3.12.
newer_root() {
  debian forky amd64 "$work/root-newer" python3.14,python3.14-venv,python3.15,python3.15-venv || return
  for version in 3.14 3.15; do wheels_for "$work/root-newer" x86_64 "$version" pip numpy || return; done
  echo "Debian testing is unpacked"
}

run_newer() {
  local version
  is_root || { skip newer "Debian testing" "needs root" && return; }
  need_tools
  step newer "Debian testing" newer_root
  for version in 3.14 3.15; do step newer "CPython $version" in_root "$work/root-newer" "python$version"; done
}

# What the emulated tests use. torch is too large; tests that need it are skipped.
emulated_packages=(pytest pytest-timeout hypothesis prometheus_client tqdm zarr numcodecs h5py dask xarray ml_dtypes
  safetensors tokenizers tiktoken sentencepiece zstandard scipy pyarrow)

# The Python tests that do not measure speed, beside the files of a checkout that they read. The tests of
# the wheel compile, so they are left out. Tests marked not_emulated are skipped, with the reason.
emulated_tests() {
  local root=$work/root-aarch64
  git ls-files -z README.md docs examples tests python/tests | xargs -0 cp --parents -t "$root/work" || return
  enter "$root" /bin/sh -c 'cd /work
    PYTHONPATH=$(echo /dist/pip-*.whl) env/bin/python -m pip install --quiet --no-index --find-links /dist \
      '"${emulated_packages[*]}"'
    cd python/tests && EVENKEEL_EMULATED=1 EVENKEEL_TOOL=/work/env/bin/evenkeel HYPOTHESIS_MAX_EXAMPLES=10 \
      ../../env/bin/python -m pytest -q -p no:cacheprovider --timeout 600 -m "not alone and not wheel" '"$*"
}

emulated_root() {
  local root=$work/root-aarch64
  debian bookworm arm64 "$root" python3-minimal,python3-venv,libcurl4 || return
  wheels_for "$root" aarch64 3.11 pip numpy "${emulated_packages[@]}" || return
  in_root "$root" python3 --emulated
}

run_aarch64() {
  is_root || { skip aarch64 "Debian 12, qemu-user-static" "needs root" && return; }
  need_tools
  ls "$dist"/*_aarch64.whl >/dev/null 2>&1 || die "no wheel for aarch64 in dist/: scripts/wheels --arch aarch64"
  command -v qemu-aarch64-static >/dev/null ||
    apt-get -qq -y install --no-install-recommends qemu-user-static >&2 || die "qemu-user-static is missing"
  EMULATE=1 step aarch64 "Debian 12, qemu-user-static" emulated_root
  EMULATE=1 step aarch64 "Python tests" emulated_tests
}
