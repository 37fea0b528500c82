"""evenkeel guard on programs that a preloaded library could break: they run as without the guard.

Sanitizers, seccomp filters that kill, and unmounting.
"""

import os
import shutil
import subprocess
import sys

import pytest
from guard_help import MIB, drop_from_cache, guard, plain, write_numbers


@pytest.fixture(scope="module")
def program(guard_program):
    return guard_program()


@pytest.fixture(scope="module")
def numbers(anyone):
    return anyone.own(write_numbers(anyone.folder / "numbers.bin", 48))


# ---- AddressSanitizer


def test_a_program_with_address_sanitizer_runs(anyone, guard_program, numbers):
    try:
        checked = guard_program("-fsanitize=address", name="asan")
        subprocess.run([checked, "say", "hello"], check=True, capture_output=True)
    except subprocess.CalledProcessError:
        pytest.skip("no AddressSanitizer")
    drop_from_cache(numbers)
    for command in ([checked, "scan", numbers, 400], ["sh", "-c", f"{checked} scan {numbers} 400"]):
        done = guard(anyone, "8MiB", "--", *command)
        assert done.stdout == "wrong 0\n"
        assert "ASan runtime" not in done.stderr


def test_options_of_the_user_for_the_sanitizer_are_kept(anyone):
    environment = {**os.environ, "ASAN_OPTIONS": "exitcode=7"}
    done = guard(anyone, "8MiB", "--", "sh", "-c", "echo $ASAN_OPTIONS", env=environment)
    assert done.stdout == "verify_asan_link_order=0:exitcode=7\n"


# ---- seccomp

# Kills the process for calls that the guard's library makes and programs seldom do.
FILTER = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static void install(int by_prctl, int all_threads, int few) {
  static const int kKilled[] = {SYS_fstatfs, SYS_madvise, SYS_statx, SYS_readlinkat, SYS_ioctl,
                                SYS_rt_sigprocmask, SYS_clone, SYS_clone3, SYS_futex};
  struct sock_filter code[64];
  int n = 0;
  const unsigned at = offsetof(struct seccomp_data, nr);
  code[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at);
  for (unsigned i = 0; i < (few ? 2 : sizeof kKilled / sizeof *kKilled); ++i) {
    code[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, kKilled[i], 0, 1);
    code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
  }
  code[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
  struct sock_fprog filter = {(unsigned short)n, code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) exit(2);
  const unsigned flags = all_threads ? SECCOMP_FILTER_FLAG_TSYNC : 0;
  if (by_prctl ? prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0)
               : syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, flags, &filter)) {
    exit(3);
  }
}

static unsigned long sum_of(const char* path) {
  const int fd = open(path, O_RDONLY);
  struct stat status;
  if (fd < 0 || fstat(fd, &status) != 0) exit(4);
  volatile unsigned long* words = mmap(NULL, status.st_size, PROT_READ, MAP_SHARED, fd, 0);
  if ((void*)words == MAP_FAILED) exit(5);
  unsigned long sum = 0;
  for (long i = 0; i < status.st_size / 8; ++i) sum += words[i];
  munmap((void*)words, status.st_size);
  return sum;
}

int main(int count, char** words) {
  if (count > 3 && strcmp(words[3], "child") == 0) {
    printf("%lu\n", sum_of(words[1]));
    return 0;
  }
  if (strchr(words[2], 'm') != NULL) sum_of(words[1]);  // mapped before, too
  install(strchr(words[2], 'p') != NULL, strchr(words[2], 't') != NULL,
          strchr(words[2], 'x') != NULL);
  if (strchr(words[2], 'x') != NULL) {
    execl(words[0], words[0], words[1], words[2], "child", NULL);
    return 6;
  }
  printf("%lu\n", sum_of(words[1]));
  return 0;
}
"""


@pytest.fixture(scope="module")
def filtered():
    compiler = os.environ.get("CC") or shutil.which("cc") or pytest.skip("no C compiler")
    folder = "/tmp/evenkeel-seccomp-" + str(os.getpid())
    os.mkdir(folder)
    os.chmod(folder, 0o755)
    command = [compiler, "-O1", "-xc", "-", "-o", f"{folder}/filtered"]
    if subprocess.run(command, input=FILTER, text=True, capture_output=True).returncode != 0:
        pytest.skip("no seccomp headers")
    yield f"{folder}/filtered"
    shutil.rmtree(folder)


@pytest.mark.parametrize("how", ["p", "s", "mp", "ms", "mst"])
def test_a_program_with_a_filter_that_kills_runs_unguarded(anyone, filtered, numbers, how):
    """The filter is installed by prctl (p) or seccomp (s), m: after a file was mapped, t: for all
    threads."""
    words = 48 * MIB // 8
    done = guard(anyone, "8MiB", "--", filtered, numbers, how)
    assert done.stdout == f"{words * (words - 1) // 2}\n"
    said = " ".join(done.stderr.split())  # the summary wraps its lines
    assert "1 process has a seccomp filter" in said and "not guarded" in said


def test_a_filter_from_before_exec_is_noticed(anyone, filtered, numbers):
    """The loader of the new program needs some of the calls, so this filter forbids fewer."""
    words = 48 * MIB // 8
    plain(anyone, filtered, numbers, "sx")  # otherwise the test proves nothing
    done = guard(anyone, "8MiB", "--", filtered, numbers, "sx")
    assert done.stdout == f"{words * (words - 1) // 2}\n"
    assert "1 process has a seccomp filter" in " ".join(done.stderr.split())


ENTER = """
import ctypes, mmap, os, sys
with open(sys.argv[1], "rb") as file:
    data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
data[0]
libc = ctypes.CDLL(None, use_errno=True)
CLONE_NEWUSER = 0x10000000
entered = libc.unshare(CLONE_NEWUSER) == 0
print(entered, 0 if entered else os.strerror(ctypes.get_errno()), sum(data[:: 1 << 20]))
"""


def test_a_program_can_enter_a_user_namespace(anyone, numbers):
    """The kernel refuses a process with threads. Some machines refuse every process."""
    words = [sys.executable, "-c", ENTER, numbers]
    done = guard(anyone, "8MiB", "--", *words)
    assert done.stdout == plain(anyone, *words)
    if done.stdout.startswith("True"):
        said = " ".join(done.stderr.split())  # the summary wraps its lines
        assert "a namespace that only a process without threads can enter" in said


# ---- unmounting


@pytest.fixture
def mount(numbers):
    """A new file system with a file of numbers. It is always unmounted at the end."""
    if os.geteuid() != 0 or not shutil.which("mkfs.ext4"):
        pytest.skip("not root, or no mkfs.ext4: nothing can be mounted")
    folder = numbers.parent / "mounted"
    image = numbers.parent / "image"
    folder.mkdir()
    with open(image, "wb") as file:
        file.truncate(96 * MIB)
    subprocess.run(["mkfs.ext4", "-q", image], check=True)
    command = ["mount", "-o", "loop", image, folder]
    if subprocess.run(command, capture_output=True).returncode != 0:
        folder.rmdir()
        pytest.skip("mounting is not permitted")
    shutil.copy(numbers, folder / "numbers.bin")
    drop_from_cache(folder / "numbers.bin")
    yield folder
    subprocess.run(["umount", folder], capture_output=True)
    folder.rmdir()
    image.unlink()


@pytest.mark.parametrize("budget", ["8MiB", "256MiB"])
def test_a_guarded_script_can_unmount_what_it_read(user, program, mount, budget):
    if user.prefix:
        pytest.skip("not root: cannot unmount")
    command = f"{program} scan {mount}/numbers.bin 400 && umount {mount} && echo unmounted"
    done = guard(user, budget, "--", "sh", "-c", command)
    assert done.stdout == "wrong 0\nunmounted\n"
    assert "busy" not in done.stderr


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
