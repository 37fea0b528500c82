"""The command evenkeel dedup."""

import numpy as np
import pytest
from conftest import User
from shuffle_cli_test import digest, killed_at_random, megatron, names


@pytest.fixture
def user(tmp_path):
    """The current user, in a folder for this test."""
    return User("self", tmp_path)


def firsts(values):
    """Each value at its first position."""
    return list(dict.fromkeys(values))


def test_rows_stay_where_they_occur_first(user):
    rows = np.random.default_rng(1).integers(0, 40, (50_000, 3)).astype(np.float32)
    user.save("a.npy", rows)
    wanted = np.array(firsts(map(tuple, rows)), np.float32)
    made = []
    for budget in ("16MiB", "512MiB"):
        report = user.json("dedup", "a.npy", "-o", "b.npy", "--budget", budget)
        assert report["input_items"] == 50_000
        assert report["items"] == len(wanted)
        assert report["duplicates"] == 50_000 - len(wanted) > 0
        assert report["budget_peak_bytes"] <= report["budget_bytes"]
        made.append(digest(user.folder / "b.npy"))
    assert made[0] == made[1]
    assert np.array_equal(np.load(user.folder / "b.npy"), wanted)
    again = user.json("dedup", "b.npy", "-o", "c.npy")
    assert again["duplicates"] == 0
    assert digest(user.folder / "c.npy") == made[0]
    assert names(user.folder) == ["a.npy", "b.npy", "c.npy"]


def test_lines_of_several_files(user):
    one = [b"line %d" % (i * i % 997) for i in range(5_000)]
    user.write("1.txt", b"\n".join(one) + b"\n")
    user.write("2.txt", b"\nline 4\n\nother\nother")  # no newline at the end: the same line
    report = user.json("dedup", "1.txt", "2.txt", "-o", "out", "--budget", "16MiB")
    lines = (user.folder / "out").read_bytes().split(b"\n")
    assert lines.pop() == b""
    assert lines == firsts([*one, b"", b"other"])
    assert report["unit"] == "lines"
    user.write("empty.txt", b"")
    assert user.json("dedup", "empty.txt", "-o", "none")["items"] == 0
    assert (user.folder / "none").read_bytes() == b""


def test_documents_of_tokens(user):
    tokens = np.array([1, 2, 0, 3, 0, 1, 2, 0, 3, 3, 0, 3, 0], np.uint16)
    user.write("t.bin", tokens.tobytes())
    report = user.json("dedup", "t.bin", "--eos", 0, "-o", "u.bin", "--budget", "16MiB")
    assert (report["items"], report["duplicates"]) == (3, 2)
    assert np.fromfile(user.folder / "u.bin", np.uint16).tolist() == [1, 2, 0, 3, 0, 3, 3, 0]
    megatron(user, "corpus", [5, 6, 7])
    user.run("merge", "corpus.idx", "corpus.idx", "-o", "twice.bin", "--format", "megatron")
    user.run("dedup", "twice.idx", "-o", "once.bin", "--budget", "16MiB")
    assert digest(user.folder / "once.bin") == digest(user.folder / "corpus.bin")
    assert digest(user.folder / "once.idx") == digest(user.folder / "corpus.idx")


def test_more_hashes_than_the_table_holds(user):
    """Lines are much shorter than the first ones suggest, so parts are processed in turn."""
    first = [b"x" * 5_000 + b"%d" % i for i in range(100)]
    rest = [b"%d" % (i % 1_500_000) for i in range(1_600_000)]
    user.write("a.txt", b"\n".join(first + rest) + b"\n")
    report = user.json("dedup", "a.txt", "-o", "b.txt", "--budget", "16MiB")
    assert (report["items"], report["duplicates"]) == (1_500_100, 100_000)
    assert report["how"].startswith("1 part of")
    lines = (user.folder / "b.txt").read_bytes().split(b"\n")
    assert lines[:-1] == first + rest[:1_500_000]


@pytest.mark.parametrize("kind", ["rows", "lines"])
def test_killed_and_resumed_gives_the_same_bytes(user, kind):
    if kind == "rows":
        user.save("in.npy", np.random.default_rng(1).integers(0, 30_000, 15_000).repeat(64))
        args = ["dedup", "in.npy", "-o", "out"]
    else:
        numbers = np.random.default_rng(1).integers(0, 200_000, 300_000)
        user.write("in.txt", b"".join(b"some words and %d\n" % i for i in numbers))
        args = ["dedup", "in.txt", "-o", "out"]
    args += ["--budget", "16MiB", "--checkpoint", "1MiB"]
    seconds = user.json(*args)["seconds"]
    wanted = digest(user.folder / "out")
    (user.folder / "out").unlink()
    report = killed_at_random(user, *args, longest=1.5 * seconds + 0.02)
    assert digest(user.folder / "out") == wanted
    assert report["items"] + report["duplicates"] == report["input_items"]
    assert len(names(user.folder)) == 2


def test_errors_say_what_to_do(user):
    user.save("a.npy", np.zeros((10, 2), np.float32))
    assert "is an input, too" in user.run("dedup", "a.npy", "-o", "a.npy", code=1).stderr
    small = user.run("dedup", "a.npy", "-o", "b.npy", "--budget", "1MiB", code=1).stderr
    assert "the least is 16 MiB" in small
    assert names(user.folder) == ["a.npy"]
