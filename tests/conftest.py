"""The tool, and who runs it. The tool's path comes from EVENKEEL_TOOL."""

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import pytest

TOOL = os.environ.get("EVENKEEL_TOOL") or str(Path(__file__).parent.parent / "build" / "evenkeel")
NOBODY = 65534


class User:
    """Runs the tool in a folder of the user's own: as we are, or as nobody."""

    def __init__(self, name, folder):
        self.folder = folder
        self.prefix = []
        if name == "nobody":
            self.prefix = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]

    def command(self, *args):
        return [*self.prefix, TOOL, *map(str, args)]

    def run(self, *args, code=0, **kwargs):
        done = subprocess.run(
            self.command(*args),
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
            **kwargs,
        )
        assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    def json(self, *args):
        done = self.run(*args, "--json")
        assert done.stderr == ""
        return json.loads(done.stdout)

    def own(self, path):
        if self.prefix:
            os.chown(path, NOBODY, NOBODY)
        return path

    def save(self, name, array):
        np.save(self.folder / name, array)
        return self.own(self.folder / name)

    def write(self, name, data):
        (self.folder / name).write_bytes(data)
        return self.own(self.folder / name)


@pytest.fixture(scope="module", params=["self", "nobody"])
def user(request):
    if request.param == "nobody":
        if os.geteuid() != 0:
            pytest.skip("not root: cannot become another user")
        if not shutil.which("setpriv"):
            pytest.skip("no setpriv: cannot become another user")
    base = os.environ.get("TMPDIR") or "/var/tmp"  # a disk, if there is one
    folder = Path(tempfile.mkdtemp(prefix="evenkeel-cli-test-", dir=base))
    user = User(request.param, folder)
    user.own(folder)
    os.chmod(folder, 0o755)
    yield user
    shutil.rmtree(folder)
