"""Memory cgroups, version 1 and 2."""

import contextlib
import itertools
import os
import pathlib
import time

from .data import say

V1 = pathlib.Path("/sys/fs/cgroup/memory")
V2 = pathlib.Path("/sys/fs/cgroup")
_numbers = itertools.count()


class Group:
    """A memory cgroup created for one measurement."""

    def __init__(self, path, v1):
        self.path, self._v1 = path, v1

    @property
    def inside(self):
        """A command prefix that runs a command in the group."""
        return ["sh", "-c", f'echo $$ >"{self.path}/cgroup.procs" && exec "$@"', "sh"]

    @property
    def peak(self):
        """The peak of memory charged to the group, page cache included."""
        name = "memory.max_usage_in_bytes" if self._v1 else "memory.peak"
        with contextlib.suppress(OSError):
            return int((self.path / name).read_text())
        return None

    @property
    def kills(self):
        """How many processes the OOM killer has killed in the group."""
        name = "memory.oom_control" if self._v1 else "memory.events"
        with contextlib.suppress(OSError):
            for line in (self.path / name).read_text().splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
        return 0


@contextlib.contextmanager
def memory_cgroup(limit):
    """A new group with this limit in bytes. None if it cannot be created; the reason is printed on
    stderr."""
    v1 = V1.is_dir()
    top, knob = (V1, "memory.limit_in_bytes") if v1 else (V2, "memory.max")
    path = top / f"evenkeel-bench-{os.getpid()}-{next(_numbers)}"
    try:
        if not v1 and "memory" not in (V2 / "cgroup.subtree_control").read_text().split():
            (V2 / "cgroup.subtree_control").write_text("+memory")
        path.mkdir()
        (path / knob).write_text(str(limit))
    except OSError as error:
        say(f"bench: no memory cgroup: {error}")
        with contextlib.suppress(OSError):
            path.rmdir()
        yield None
        return
    try:
        yield Group(path, v1)
    finally:
        for _ in range(100):
            with contextlib.suppress(OSError):
                path.rmdir()
                break
            time.sleep(0.05)
