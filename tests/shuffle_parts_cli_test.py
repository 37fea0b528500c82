"""The command evenkeel shuffle with a manifest."""

import hashlib
import re
import sys

import numpy as np
import pytest
from conftest import User

pytest.importorskip("evenkeel._shuffle_command")


@pytest.fixture
def user(tmp_path, monkeypatch):
    monkeypatch.setenv("EVENKEEL_PYTHON", sys.executable)
    return User("self", tmp_path)


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_parts_and_finish(user):
    user.save("a.npy", np.arange(60_000, dtype=np.float32).reshape(-1, 6))
    user.run("shuffle", "a.npy", "-o", "one.npy", "--seed", 5)
    words = ["-o", "many.npy", "--seed", 5, "--manifest", "m.json", "--parts", 2]
    assert user.json("shuffle", "a.npy", *words)["steps"] == [[0, 2], [2, 4]]
    for part in range(4):
        report = user.json("shuffle", "--manifest", "m.json", "--part", part, "--budget", "16MiB")
        assert report["step"] == ("distribute" if part < 2 else "write")
        assert report["budget_peak_bytes"] <= report["budget_bytes"]
    assert user.json("shuffle", "--manifest", "m.json", "--finish")["items"] == 10_000
    assert digest(user.folder / "many.npy") == digest(user.folder / "one.npy")


def test_errors_are_said_and_have_a_code(user):
    user.save("a.npy", np.arange(60.0))
    for words, message, code in (
        (["a.npy"], "--output is required", 2),
        (["-o", "x.npy"], "FILE is required", 2),
        (["a.npy", "--parts", "2"], "need --manifest", 1),
        (["a.npy", "--manifest", "m.json"], "needs files and --output", 1),
        (["a.npy", "-o", "x.npy", "--manifest", "m.json"], "--manifest needs --parts", 1),
        (["--manifest", "none.json", "--part", "0"], "none.json", 1),
        (["--manifest", "m.json", "--part", "0", "--seed", "5"], "cannot be given together", 1),
    ):
        assert message in user.run("shuffle", *words, code=code).stderr


def test_the_tool_and_python_have_the_same_options(user):
    from evenkeel import _shuffle_command

    text = user.run("shuffle", "--help").stdout.split("Examples:")[0]
    words = set(re.findall(r"(?<![\w-])(--[a-z-]+)", text))
    known = {
        name
        for action in _shuffle_command.parser()._actions
        for name in action.option_strings
        if name.startswith("--")
    }
    assert words - {"--help"} == known - {"--help"}
