"""The commands evenkeel shuffle and evenkeel verify."""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from conftest import User

MIB = 1 << 20


@pytest.fixture
def user(tmp_path):
    """The current user, in a folder for this test."""
    return User("self", tmp_path)


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def megatron(user, base, lengths, dtype=np.uint16, code=8):
    """Writes a Megatron pair without the library. All tokens of document i are i."""
    tokens = np.repeat(np.arange(len(lengths)), lengths).astype(dtype)
    pointers = np.concatenate([[0], np.cumsum(lengths)[:-1]]) * tokens.itemsize
    index = b"MMIDIDX\x00\x00" + np.uint64(1).tobytes() + bytes([code])
    index += np.uint64(len(lengths)).tobytes() + np.uint64(len(lengths) + 1).tobytes()
    index += np.asarray(lengths, np.int32).tobytes() + pointers.astype(np.int64).tobytes()
    index += np.arange(len(lengths) + 1, dtype=np.int64).tobytes()
    user.write(f"{base}.bin", tokens.tobytes())
    user.write(f"{base}.idx", index)
    return tokens


def test_rows_are_the_same_for_every_budget(user):
    rows = np.arange(600_000, dtype=np.float32).reshape(-1, 6)
    user.save("a.npy", rows)
    made = []
    for budget in ("16MiB", "64MiB", "1GiB"):
        report = user.json("shuffle", "a.npy", "-o", "b.npy", "--seed", 5, "--budget", budget)
        assert report["items"] == 100_000
        assert report["bytes"] == rows.nbytes
        assert report["budget_peak_bytes"] <= report["budget_bytes"]
        made.append(digest(user.folder / "b.npy"))
    assert len(set(made)) == 1
    shuffled = np.load(user.folder / "b.npy")
    assert not np.array_equal(shuffled, rows)
    assert np.array_equal(shuffled[np.argsort(shuffled[:, 0])], rows)
    user.run("shuffle", "a.npy", "-o", "c.npy", "--seed", 6)
    assert digest(user.folder / "c.npy") != made[0]
    assert names(user.folder) == ["a.npy", "b.npy", "c.npy"]


def test_lines_of_several_files(user):
    one = [b"line %d" % i + b"x" * (i % 90) for i in range(20_000)]
    two = [b"", b"other", b"y" * 600_000]
    user.write("1.txt", b"\n".join(one) + b"\n")
    user.write("2.txt", b"\n".join(two))  # no newline at the end
    user.write("3.txt", b"")
    report = user.json("shuffle", "1.txt", "3.txt", "2.txt", "-o", "out", "--budget", "16MiB")
    lines = (user.folder / "out").read_bytes().split(b"\n")
    assert lines.pop() == b""
    assert sorted(lines) == sorted(one + two)
    assert report["items"] == len(lines)
    assert report["unit"] == "lines"


def test_documents_keep_their_index(user):
    lengths = np.random.default_rng(1).integers(1, 400, 3_000)
    megatron(user, "corpus", lengths)
    report = user.json("shuffle", "corpus.idx", "-o", "mixed", "--budget", "32MiB")
    assert report["unit"] == "documents"
    index = (user.folder / "mixed.idx").read_bytes()
    found = np.frombuffer(index, np.int32, 3_000, offset=34)
    tokens = np.fromfile(user.folder / "mixed.bin", np.uint16)
    documents = np.split(tokens, np.cumsum(found)[:-1])
    assert sorted(int(d[0]) for d in documents) == list(range(3_000))
    assert all((d == d[0]).all() and len(d) == lengths[d[0]] for d in documents)
    assert [int(d[0]) for d in documents] != list(range(3_000))


def test_blocks_and_documents_of_bare_tokens(user):
    tokens = np.arange(10_500, dtype=np.uint16)
    user.write("t.bin", tokens.tobytes())
    user.run("shuffle", "t.bin", "--block", 1000, "-o", "blocks.bin", "--budget", "32MiB")
    mixed = np.fromfile(user.folder / "blocks.bin", np.uint16)
    assert sorted(mixed) == list(tokens)
    starts = [int(t) for t in mixed if t % 1000 == 0]
    assert sorted(starts) == list(range(0, 10_500, 1000)) != starts
    user.write("d.bin", np.array([1, 0, 2, 2, 0, 3, 3, 3, 0], np.uint16).tobytes())
    user.run("shuffle", "d.bin", "--eos", 0, "-o", "e.bin", "--seed", 4, "--budget", "32MiB")
    mixed = np.fromfile(user.folder / "e.bin", np.uint16).tolist()
    assert sorted(mixed) == [0, 0, 0, 1, 2, 2, 3, 3, 3]
    text = "".join(map(str, mixed))
    assert all(part in text for part in ("10", "220", "3330"))


def test_memory_stays_within_the_budget(user):
    """60 MiB in a budget of 16 MiB: the process itself takes some MiB more."""
    user.save("a.npy", np.zeros((100_000, 162), np.float32))
    # Not started by this process: a child of fork inherits the peak of its parent.
    program = "import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True);"
    program += "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    command = user.command("shuffle", "a.npy", "-o", "b.npy", "--budget", "16MiB", "--json")
    done = subprocess.run(
        [sys.executable, "-S", "-c", program, *command],
        cwd=user.folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout.split()[-1]) << 10 < 16 * MIB + 24 * MIB


KILLS = int(os.environ.get("EVENKEEL_KILLS", "8"))


def killed_at_random(user, *args, longest, kills=KILLS):
    """Kills the command several times at random moments. Returns the report of the last run."""
    chance = random.Random(7)
    killed = 0
    while True:
        child = subprocess.Popen(
            user.command(*args, "--resume", "--json"),
            cwd=user.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        if killed < kills:
            time.sleep(chance.random() * longest)
            child.send_signal(signal.SIGKILL)
            killed += 1
        out, err = child.communicate(timeout=120)
        if child.returncode == 0 and killed >= kills:
            return json.loads(out)
        assert child.returncode in (0, -signal.SIGKILL), err


@pytest.mark.parametrize("kind", ["rows", "documents"])
def test_killed_and_resumed_gives_the_same_bytes(user, kind):
    if kind == "rows":
        user.save("in.npy", np.random.default_rng(1).random((60_000, 64), np.float32))
        args, outputs = ["shuffle", "in.npy", "-o", "out.npy", "--seed", 1], ["out.npy"]
    else:
        megatron(user, "in", np.random.default_rng(1).integers(1, 2_000, 6_000))
        args, outputs = ["shuffle", "in.idx", "-o", "out.bin"], ["out.bin", "out.idx"]
    args += ["--budget", "16MiB", "--checkpoint", "2MiB"]
    began = time.monotonic()
    user.run(*args)
    longest = time.monotonic() - began
    wanted = [digest(user.folder / name) for name in outputs]
    for name in outputs:
        (user.folder / name).unlink()
    killed_at_random(user, *args, longest=1.2 * longest)
    assert [digest(user.folder / name) for name in outputs] == wanted
    assert not [name for name in names(user.folder) if "partial" in name or "shuffle" in name]


def test_other_work_is_not_resumed(user):
    user.save("a.npy", np.zeros((200_000, 20), np.float32))
    args = ["shuffle", "a.npy", "-o", "b.npy", "--budget", "16MiB", "--checkpoint", "1MiB"]
    state = user.folder / "b.npy.shuffle.partial.state"
    output = user.folder / "b.npy"
    for _ in range(200):  # if it ends too soon, it is started again
        child = subprocess.Popen(user.command(*args), cwd=user.folder)
        while not state.exists() and child.poll() is None:
            time.sleep(0.0005)
        child.kill()
        child.wait()
        if state.exists() and not output.exists():
            break
        output.unlink(missing_ok=True)
    message = user.run(*args, "--seed", 9, "--resume", code=1).stderr
    assert "the unfinished work has other files" in message
    assert "hint:" in message
    assert not (user.folder / "b.npy").exists()


def test_an_input_is_not_replaced(user):
    megatron(user, "corpus", [5, 6, 7])
    before = digest(user.folder / "corpus.bin"), digest(user.folder / "corpus.idx")
    for name in ("corpus.bin", "corpus", "./corpus.idx"):
        assert "is an input, too" in user.run("shuffle", "corpus.idx", "-o", name, code=1).stderr
    assert (digest(user.folder / "corpus.bin"), digest(user.folder / "corpus.idx")) == before
    assert names(user.folder) == ["corpus.bin", "corpus.idx"]


def test_errors_say_what_to_do(user):
    user.save("a.npy", np.zeros((10, 2), np.float32))
    same = user.run("shuffle", "a.npy", "-o", "a.npy", code=1).stderr
    assert "this is an input, too" in same
    small = user.run("shuffle", "a.npy", "-o", "b.npy", "--budget", "1MiB", code=1).stderr
    assert "the least is 16 MiB" in small
    assert "No such file" in user.run("shuffle", "x.npy", "-o", "b.npy", code=1).stderr
    assert "No such file" in user.run("shuffle", "a.npy", "-o", "no/b.npy", code=1).stderr
    user.run("shuffle", "a.npy", code=2)
    user.run("shuffle", "a.npy", "-o", "b", "--unit", "cows", code=2)
    assert names(user.folder) == ["a.npy"]


def test_verify_names_the_bad_bytes(user):
    user.save("a.npy", np.random.default_rng(1).random(1_000_000))
    user.run("shuffle", "a.npy", "-o", "b.npy", "--checksums", "--budget", "64MiB")
    assert user.json("verify", "b.npy")[0]["good"]
    message = user.run("verify", "a.npy", code=1).stderr
    assert "evenkeel verify --write" in message
    user.run("verify", "--write", "a.npy")
    assert "good" in user.run("verify", "a.npy").stdout
    assert "holds checksums" in user.run("verify", "a.npy.xxh3", code=1).stderr
    with open(user.folder / "b.npy", "r+b") as file:
        file.seek(3 * MIB + 5)
        file.write(b"!")
    done = user.run("verify", "b.npy", "--json", code=1)
    (report,) = json.loads(done.stdout)
    assert report["first_bad"] == {"begin": 3 * MIB, "end": 4 * MIB}
    with open(user.folder / "b.npy", "r+b") as file:
        file.truncate(7 * MIB)
    assert "it had 8,000,128" in user.run("verify", "b.npy", code=1).stdout
