"""The commands evenkeel convert, merge, split and sample."""

import os
import resource
import signal
import subprocess

import numpy as np
import pytest
from conftest import User
from shuffle_cli_test import digest, killed_at_random, megatron, names


@pytest.fixture
def user(tmp_path):
    """The current user, in a folder for this test."""
    return User("self", tmp_path)


def loaded(user, name):
    return np.load(user.folder / name)


def test_convert_changes_format_and_type(user):
    rows = np.random.default_rng(1).integers(-100, 100, (5000, 7))
    user.save("a.npy", rows)
    user.run("convert", "a.npy", "-o", "b.npy", "--to", "int8")
    assert np.array_equal(loaded(user, "b.npy"), rows)
    assert loaded(user, "b.npy").dtype == np.int8
    user.run("convert", "b.npy", "-o", "c.raw", "--format", "raw", "--to", "float32")
    assert np.array_equal(np.fromfile(user.folder / "c.raw", np.float32), rows.ravel())
    raw = ["--dtype", "float32", "--shape", "-1,7"]
    user.run("convert", "c.raw", *raw, "-o", "d.npy", "--format", "npy", "--to", "int64")
    assert np.array_equal(loaded(user, "d.npy"), rows)


def test_every_byte_of_bool_but_zero_is_true(user):
    flags = np.array([255, 0, 1, 2], np.uint8).view(bool)
    user.save("a.npy", flags)
    user.run("convert", "a.npy", "-o", "b.npy", "--to", "uint8")
    assert loaded(user, "b.npy").tolist() == flags.astype(np.uint8).tolist() == [1, 0, 1, 1]


def test_values_that_do_not_fit_are_named(user):
    for values, to, message in (
        (np.array([1, 300, 2]), "uint8", "element 1 is 300, which uint8 cannot hold"),
        (np.array([-1]), "uint64", "element 0 is -1"),
        (np.array([0.5]), "int32", "element 0 is 0.5"),
        (np.array([255.00001]), "uint8", "element 0 is 255.00001, which uint8"),
        (np.array([np.nan]), "int32", "element 0 is nan"),
        (np.array([2.0**31]), "int32", "element 0 is"),
        (np.array([1e300]), "float32", "element 0 is 1e+300"),
        (np.array([1 + 2j]), "float32", "complex128 are not converted to float32"),
    ):
        user.save("a.npy", values)
        assert message in user.run("convert", "a.npy", "-o", "b.npy", "--to", to, code=1).stderr
        assert names(user.folder) == ["a.npy"]
    user.save("a.npy", np.array([-(2.0**31), 2.0**31 - 1]))
    user.run("convert", "a.npy", "-o", "b.npy", "--to", "int32")


def test_tokens_keep_their_documents(user):
    tokens = megatron(user, "corpus", [5, 1, 300, 7])
    user.run("convert", "corpus.idx", "-o", "c.ds", "--format", "datatrove", "--to", "uint32")
    assert np.array_equal(np.fromfile(user.folder / "c.ds", np.uint32), tokens)
    ends = np.fromfile(user.folder / "c.ds.index", np.uint64).tolist()
    assert ends == [5, 6, 306, 313]
    user.run("convert", "c.ds", "-o", "back.bin", "--format", "megatron", "--to", "uint16")
    assert digest(user.folder / "back.idx") == digest(user.folder / "corpus.idx")
    assert digest(user.folder / "back.bin") == digest(user.folder / "corpus.bin")
    user.run("convert", "corpus.bin", "-o", "l.bin", "--format", "llm.c")
    head = np.fromfile(user.folder / "l.bin", np.int32, 3).tolist()
    assert head == [20240520, 1, 313]


@pytest.mark.parametrize(
    ("option", "numbers"),
    [("--bos", [9, 1, 1, 9, 2, 9, 3, 3, 3]), ("--eos", [1, 1, 9, 2, 9, 3, 3, 3, 9])],
)
def test_every_command_finds_documents_by_the_token_between_them(user, option, numbers):
    user.write("b.bin", np.array(numbers, np.uint16).tobytes())
    sep = ["b.bin", option, 9]

    def documents(name):
        text = "".join(map(str, np.fromfile(user.folder / name, np.uint16)))
        return text.split("9")[1:] if option == "--bos" else text.split("9")[:-1]

    whole = ["11", "2", "333"]
    for command in ("convert", "merge"):
        user.run(command, *sep, "-o", "c.ds", "--format", "datatrove")
        assert np.fromfile(user.folder / "c.ds.index", np.uint64).tolist() == [3, 5, 9]
        assert documents("c.ds") == whole
    assert user.json("shuffle", *sep, "-o", "s.bin", "--budget", "32MiB")["items"] == 3
    assert sorted(documents("s.bin")) == whole
    assert user.json("sample", *sep, "-o", "s.bin", "--count", 2)["items"] == 2
    assert len(documents("s.bin")) == 2 and set(documents("s.bin")) < set(whole)
    user.run("split", *sep, "-o", "p{}.bin", "--parts", 2)
    assert documents("p00000.bin") + documents("p00001.bin") == whole
    assert user.json("dedup", *sep, "-o", "d.bin")["items"] == 3
    assert documents("d.bin") == whole
    lengths = user.json("stats", *sep, "--tokens")["lengths"]
    assert (lengths["count"], lengths["min"], lengths["max"]) == (3, 2, 4)
    other = "--eos" if option == "--bos" else "--bos"
    said = user.run("convert", *sep, other, 9, "-o", "x.bin", code=1).stderr
    assert "bos and eos exclude each other" in said and not (user.folder / "x.bin").exists()


def test_merge_and_split_undo_each_other(user):
    rows = np.arange(30_000, dtype=np.float32).reshape(-1, 3)
    user.save("a.npy", rows)
    report = user.json("split", "a.npy", "-o", "part_{}.npy", "--parts", 7)
    assert [len(loaded(user, one["file"])) for one in report["outputs"]] == [
        one["items"] for one in report["outputs"]
    ]
    assert max(one["items"] for one in report["outputs"]) <= 1429
    user.run("merge", "part_*.npy", "-o", "all.npy")
    assert digest(user.folder / "all.npy") == digest(user.folder / "a.npy")
    shares = ["--shares", "0.98,0.01,0.01"]
    report = user.json("split", "a.npy", "-o", "set_{}.npy", *shares)
    assert [one["items"] for one in report["outputs"]] == [9800, 100, 100]
    assert "must contain {}" in user.run("split", "a.npy", "-o", "x", "--parts", 2, code=1).stderr
    assert "give --parts" in user.run("split", "a.npy", "-o", "x_{}.npy", code=2).stderr
    many = ["--parts", 2**64 - 1]
    assert "at most 1,000,000" in user.run("split", "a.npy", "-o", "x_{}", *many, code=1).stderr
    lines = b"".join(b"%d\n" % i for i in range(1000))
    user.write("a.txt", lines)
    user.run("split", "a.txt", "-o", "t{}.txt", "--parts", 3)
    user.run("merge", "t00000.txt", "t00001.txt", "t00002.txt", "-o", "b.txt")
    assert (user.folder / "b.txt").read_bytes() == lines


def test_a_count_below_zero_is_named(user):
    said = user.run("sample", "a.npy", "-o", "b.npy", "--count", "-1", code=2).stderr
    assert '"-1" is not a whole number of 0 or more' in said


def test_options_of_other_items_are_refused(user):
    user.write("a.txt", b"one\ntwo\n")
    user.save("a.npy", np.zeros((10, 2)))
    for words, message in (
        (["convert", "a.txt", "--to", "int16"], "lines of text have no element type"),
        (["merge", "a.txt", "--tokens"], "these are lines of text"),
        (["convert", "a.txt", "--format", "nanogpt"], "these are lines of text"),
        (["sample", "a.txt", "--count", 1, "--dtype", "int8"], "a dtype was given"),
        (["dedup", "a.txt", "--shape", "2,2"], "a shape was given"),
        (["shuffle", "a.txt", "--unit", "lines", "--eos", 1], "bos or eos was given"),
        (["shuffle", "a.npy", "--unit", "rows", "--block", 1], "tokens of a block were given"),
    ):
        said = user.run(*words, "-o", "b", code=1).stderr
        assert message in said
        assert names(user.folder) == ["a.npy", "a.txt"]
    assert "a dtype was given" in user.run("stats", "a.txt", "--dtype", "int8", code=1).stderr


def test_sample_takes_each_item_at_most_once(user):
    user.save("a.npy", np.arange(10_000))
    first = None
    for seed in (1, 1, 2):
        user.run("sample", "a.npy", "-o", "b.npy", "--count", 500, "--seed", seed)
        taken = loaded(user, "b.npy")
        assert len(taken) == 500
        assert (np.diff(taken) > 0).all()
        assert first is None or np.array_equal(taken, first) == (seed == 1)
        first = taken if first is None else first
    # 20 parts of the input: 25 of each are expected.
    counts = np.bincount(first // 500, minlength=20)
    assert ((counts - 25) ** 2 / 25).sum() < 50
    user.write("a.txt", b"".join(b"%d\n" % i for i in range(1000)))
    assert user.json("sample", "a.txt", "-o", "b.txt", "--count", 10)["items"] == 10
    assert user.json("sample", "a.txt", "-o", "b.txt", "--count", 2000)["items"] == 1000


def test_merge_by_weights(user):
    user.save("a.npy", np.arange(0, 300))
    user.save("b.npy", np.arange(1000, 1050))
    user.save("c.npy", np.arange(1050, 1100))
    mixed = ["merge", "a.npy", "[bc].npy", "-o", "m.npy", "--weights", "3,1"]
    assert user.json(*mixed)["items"] == 400
    found = loaded(user, "m.npy")
    for end in range(401):  # truncated at every byte
        assert abs((found[:end] < 1000).sum() - 0.75 * end) < 1
    assert found[found < 1000].tolist() == list(range(300))
    assert found[found >= 1000].tolist() == list(range(1000, 1100))
    even = ["merge", "a.npy", "b.npy", "-o", "m.npy", "--weights", "1,1"]
    assert user.json(*even)["items"] == 100 + (loaded(user, "m.npy")[0] < 1000)
    assert user.json(*even, "--repeat")["items"] in (599, 600)
    found = loaded(user, "m.npy")
    assert found[found < 1000].tolist() == list(range(300))
    assert found[found >= 1000].tolist() == (list(range(1000, 1050)) * 6)[: (found >= 1000).sum()]
    parts = [*even[:3], "-o", "p_{}.npy", "--weights", "1,1", "--repeat", "--parts", 4]
    report = user.json(*parts)
    assert [len(loaded(user, one["file"])) for one in report["outputs"]] == [
        one["items"] for one in report["outputs"]
    ]
    assert max(abs(one["items"] - 150) for one in report["outputs"]) <= 1
    joined = np.concatenate([loaded(user, one["file"]) for one in report["outputs"]])
    assert np.array_equal(joined, found)
    user.write("a.txt", b"".join(b"a%d\n" % i for i in range(8)))
    user.write("b.txt", b"b0\nb1")
    user.run("merge", "a.txt", "b.txt", "-o", "m.txt", "--weights", "0.8,0.2")
    lines = (user.folder / "m.txt").read_text().split()
    assert [line for line in lines if line[0] == "a"] == [f"a{i}" for i in range(8)]
    assert [line for line in lines if line[0] == "b"] == ["b0", "b1"]
    assert "3 weights, but 2" in user.run(*even[:-1], "1,1,1", code=1).stderr
    user.run(*even[:-1], "1,0", code=2)
    user.run("merge", "a.npy", "-o", "m.npy", "--repeat", code=2)
    user.save("f.npy", np.zeros(5, np.float32))
    other = ["merge", "a.npy", "f.npy", "-o", "m.npy", "--weights", "1,1"]
    assert "those of the first file int64" in user.run(*other, code=1).stderr


@pytest.mark.parametrize("command", ["convert", "split", "sample", "merge"])
def test_killed_and_resumed_gives_the_same_bytes(user, command):
    rows = 15_000 if command == "merge" else 60_000
    user.save("a.npy", np.random.default_rng(1).random((rows, 64)))
    args = {
        "merge": ["a.npy", "-o", "b_{}.npy", "--weights", "2,1", "--repeat", "--parts", "3"],
        "convert": ["-o", "b.npy", "--to", "float32"],
        "split": ["-o", "b_{}.npy", "--parts", "5"],
        "sample": ["-o", "b.npy", "--count", "30000"],
    }[command]
    args = [command, "a.npy", *args, "--budget", "8MiB", "--checkpoint", "1MiB"]
    seconds = user.json(*args)["seconds"]
    wanted = {path.name: digest(path) for path in user.folder.iterdir()}
    for path in user.folder.iterdir():
        if path.name != "a.npy":
            path.unlink()
    killed_at_random(
        user, *args, longest=1.5 * seconds + 0.02, kills=int(os.environ.get("EVENKEEL_KILLS", "4"))
    )
    assert {path.name: digest(path) for path in user.folder.iterdir()} == wanted


def killed_at_size(user, *args, bytes):
    """The kernel kills it when a file would exceed this size, after some checkpoints."""

    def limit():
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (bytes, bytes))

    command = user.command(*args, "--budget", "8MiB", "--checkpoint", "1MiB")
    done = subprocess.run(command, cwd=user.folder, preexec_fn=limit, capture_output=True)
    assert done.returncode == -signal.SIGXFSZ, done.stderr


def test_other_work_is_not_resumed(user):
    rows = np.random.default_rng(1).random((20_000, 64))
    user.save("a.npy", rows)
    user.save("b.npy", rows)
    sample = ["sample", "a.npy", "-o", "c.npy", "--count", 19_000, "--seed"]
    killed_at_size(user, *sample, 1, bytes=6 << 20)
    assert names(user.folder) == ["a.npy", "b.npy", "c.npy.partial", "c.npy.partial.state"]
    message = user.run(*sample, 2, "--resume", code=1).stderr
    assert "the unfinished work has other files" in message
    assert "hint:" in message
    assert user.json(*sample, 1, "--resume")["resumed"]
    assert len(loaded(user, "c.npy")) == 19_000
    killed_at_size(user, "merge", "a.npy", "b.npy", "-o", "d.npy", bytes=6 << 20)
    assert "has other files" in user.run("merge", "a.npy", "-o", "d.npy", "--resume", code=1).stderr
    assert user.json("merge", "a.npy", "b.npy", "-o", "d.npy", "--resume")["resumed"]
    assert np.array_equal(loaded(user, "d.npy"), np.concatenate([rows, rows]))


def test_other_options_are_other_work(user):
    user.write("t.bin", np.arange(4_000_000, dtype=np.uint32).astype(np.uint16).tobytes())
    made = ["convert", "t.bin", "--tokens", "-o", "u.bin", "--to", "uint32"]
    killed_at_size(user, *made, "--block", 1000, bytes=6 << 20)
    assert "has other files" in user.run(*made, "--block", 500, "--resume", code=1).stderr
    assert user.json(*made, "--block", 1000, "--resume")["resumed"]
    user.save("a.npy", np.arange(2_000_000))
    made = ["merge", "a.npy", "a.npy", "-o", "m.npy", "--weights"]
    killed_at_size(user, *made, "1e-7,1e-7", bytes=6 << 20)
    assert "has other files" in user.run(*made, "1e-7,3e-7", "--resume", code=1).stderr
    assert user.json(*made, "1e-7,1e-7", "--resume")["resumed"]


def test_a_split_that_is_resumed_reports_all_parts(user):
    user.write("a.txt", b"".join(b"line %d\n" % i for i in range(400_000)))
    split = ["split", "a.txt", "-o", "b_{}.txt", "--shares", "1,2,4"]
    wanted = user.json(*split)
    made = {path.name: digest(path) for path in user.folder.iterdir()}
    for path in user.folder.glob("b_*"):
        path.unlink()
    killed_at_size(user, *split, bytes=2 << 20)  # in the last part
    assert "b_00000.txt.split" in names(user.folder)
    found = user.json(*split, "--resume")
    assert found["resumed"] and found["outputs"] == wanted["outputs"]
    for name in ("items", "bytes"):
        assert found[name] == wanted[name]
    assert {path.name: digest(path) for path in user.folder.iterdir()} == made


def test_an_input_is_not_replaced(user):
    user.save("part_00001.npy", np.arange(100))
    for args in (
        ["merge", "part_00001.npy", "-o", "./part_00001.npy"],
        ["split", "part_00001.npy", "-o", "part_{}.npy", "--parts", 3],
    ):
        assert "is an input, too" in user.run(*args, code=1).stderr
    megatron(user, "corpus", [5, 6, 7])
    pair = ["convert", "corpus.bin", "-o", "corpus.idx", "--format", "megatron"]
    assert "is an input, too" in user.run(*pair, code=1).stderr
    assert names(user.folder) == ["corpus.bin", "corpus.idx", "part_00001.npy"]
    assert np.array_equal(loaded(user, "part_00001.npy"), np.arange(100))


def test_element_types_stay_what_they_are(user):
    fields = np.zeros(100, [("x", "<f4"), ("name", "S3"), ("é", ">i8", (2,))])
    fields["x"] = np.arange(100)
    for array in (
        fields,
        np.array([b"one", b"three"]),
        np.array(["one", "three"]),
        np.arange(100).astype("M8[s]"),
    ):
        user.save("a.npy", array)
        user.run("convert", "a.npy", "-o", "b.npy")
        assert loaded(user, "b.npy").dtype == array.dtype
        assert np.array_equal(loaded(user, "b.npy"), array)
        user.run("shuffle", "a.npy", "-o", "c.npy", "--budget", "16MiB")
        assert loaded(user, "c.npy").dtype == array.dtype
    user.save("b.npy", np.arange(100).astype("m8[s]"))
    assert "same element type" in user.run("merge", "a.npy", "b.npy", "-o", "d.npy", code=1).stderr
