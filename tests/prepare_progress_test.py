"""Commands that make data show their progress, but only on a terminal."""

import os
import pty
import re
import subprocess

import pytest
from conftest import User

COMMANDS = {
    "convert": (["a.txt", "-o", "out"], {"copying"}),
    "merge": (["a.txt", "b.txt", "-o", "out", "--weights", "1,1"], {"counting", "copying"}),
    "split": (["a.txt", "-o", "out_{}", "--parts", "3"], {"copying"}),
    "sample": (["a.txt", "-o", "out", "--count", "1000"], {"counting", "copying"}),
    "dedup": (["a.txt", "-o", "out"], {"hashing", "finding duplicates", "copying"}),
    "shuffle": (["a.txt", "-o", "out"], {"distributing", "writing"}),
    "stats": (["a.txt"], {"reading"}),
    "verify": (["a.txt", "--write"], {"reading"}),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_progress_on_a_terminal(tmp_path, command):
    user = User("self", tmp_path)
    text = b"".join(b"%0200d\n" % i for i in range(200_000))  # 38 MiB
    user.write("a.txt", text)
    user.write("b.txt", text)
    words, steps = COMMANDS[command]
    end, inner = pty.openpty()
    tool = subprocess.Popen(
        user.command(command, *words, "--budget", "16MiB"),
        cwd=user.folder,
        stdout=subprocess.DEVNULL,
        stderr=inner,
    )
    os.close(inner)
    seen = b""
    try:
        while more := os.read(end, 65536):
            seen += more
    except OSError:  # the other end was closed
        pass
    os.close(end)
    assert tool.wait(60) == 0, seen
    shown = re.findall(r"([0-9]+) %  ([a-z ]+)", seen.decode())
    assert shown, seen
    assert {step for _, step in shown} <= steps
    shares = [int(share) for share, _ in shown]
    assert shares == sorted(shares) and shares[-1] <= 100
    assert seen.endswith(b"\r\033[K")  # and clears the line at the end
    quiet = user.run(command, *words, "--budget", "16MiB")
    assert "%" not in quiet.stderr
