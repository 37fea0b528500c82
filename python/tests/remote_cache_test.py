"""The cache on disk: later epochs do not ask the server, and no wrong byte is ever read."""

import os
import random
import subprocess
import sys
import time

import numpy as np
import pytest
from remote_help import ObjectServer, npy

import evenkeel

ROWS = np.random.default_rng(5).integers(0, 1 << 30, (6000, 128), dtype=np.int32)  # 3 MB


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("EVENKEEL_RETRY_DELAY", "0.001")
    with ObjectServer() as made:
        yield made


@pytest.fixture
def rows(server):
    return server.put("rows.npy", npy(ROWS))


def on_disk(folder):
    """Bytes of files; one that has two names counts once."""
    found = [os.stat(os.path.join(at, name)) for at, _, names in os.walk(folder) for name in names]
    return sum({one.st_ino: one.st_size for one in found}.values())


@pytest.mark.parametrize("shuffle", [False, True, "blocks"])
def test_a_second_epoch_asks_the_server_for_nothing(server, rows, shuffle, tmp_path):
    cache = f"{tmp_path}/ek:64MiB"
    with evenkeel.open(rows, budget="8MiB", cache=cache) as a:
        assert "cache on disk" in a.engine
        first = np.concatenate(list(a.batches(500, shuffle, seed=1)))
        assert server.bytes_sent < 1.2 * ROWS.nbytes  # each block once
        assert a.budget.in_use <= a.budget.limit
    with evenkeel.open(rows, budget="8MiB", cache=cache) as a:
        server.forget()
        second = np.concatenate(list(a.batches(500, shuffle, seed=1)))
        assert server.requests == []
        stats = a.stats()
        assert stats["bytes_from_network"] == 0 and stats["bytes_from_disk_cache"] > 0
    np.testing.assert_array_equal(first, second)
    if shuffle is False:
        np.testing.assert_array_equal(first, ROWS)


def test_rows_of_known_blocks_are_read_alone(server, rows, tmp_path):
    """A block is read and checked whole once in a process. After that, a row costs its pages."""
    cache = f"{tmp_path}/ek:64MiB"
    wanted = np.random.default_rng(3).integers(0, len(ROWS), 40)
    for opened_anew in (False, True):  # blocks that this process stored, and others
        with evenkeel.open(rows, budget="8MiB", cache=cache) as a:
            np.testing.assert_array_equal(np.concatenate(list(a.batches(500))), ROWS)
            before = a.stats()["bytes_from_disk_cache"]
            assert before >= ROWS.nbytes * opened_anew
            for one in wanted:
                np.testing.assert_array_equal(a[int(one)], ROWS[one])
            assert a.stats()["bytes_from_disk_cache"] - before <= len(wanted) * 3 * 4096
            assert a.budget.in_use <= a.budget.limit


def blocks_in(folder):
    return sorted(p for p in folder.glob("evenkeel-blocks-1/*/*") if p.parent.name != "unfinished")


def test_a_process_that_reads_blocks_once_has_used_them(server, rows, tmp_path):
    """The least recently used blocks are removed first, so the first use must be recorded, too."""
    cache = f"{tmp_path}/ek:64MiB"
    with evenkeel.open(rows, budget="8MiB", cache=cache) as a:
        np.testing.assert_array_equal(a[:], ROWS)
    blocks = blocks_in(tmp_path / "ek")
    assert blocks
    long_ago = time.time() - 100_000
    for block in blocks:
        os.utime(block, (long_ago, long_ago))
    with evenkeel.open(rows, budget="8MiB", cache=cache) as a:
        np.testing.assert_array_equal(a[:], ROWS)
    assert all(block.stat().st_mtime > long_ago + 1000 for block in blocks)


def test_uses_are_recorded_once_a_minute(server, rows, tmp_path):
    """Every time would write the inode of each block that is read."""
    cache = f"{tmp_path}/ek:64MiB"
    with evenkeel.open(rows, budget="8MiB", cache=cache) as a:
        np.testing.assert_array_equal(a[:], ROWS)
    blocks = blocks_in(tmp_path / "ek")
    assert blocks
    recently = round(time.time()) + 1000  # no time passes in a test
    for block in blocks:
        os.utime(block, (recently, recently))
    for _ in range(2):
        with evenkeel.open(rows, budget="8MiB", cache=cache) as a:
            np.testing.assert_array_equal(a[:], ROWS)
            np.testing.assert_array_equal(a[5], ROWS[5])
    assert {block.stat().st_mtime for block in blocks} == {recently}


# Not ("flip", "after"): checksums are compared once, as docs/remote.md says.
@pytest.mark.parametrize(
    "how, when",
    [
        ("flip", "before"),
        ("cut", "before"),
        ("remove", "before"),
        ("cut", "after"),
        ("empty", "after"),
        ("remove", "after"),
    ],
)
def test_damaged_blocks_are_fetched_again(server, rows, how, when, tmp_path):
    """Before the process has read them, or after."""
    cache = f"{tmp_path}/ek:64MiB"

    def damage():
        for path in blocks_in(tmp_path / "ek"):
            if how == "remove":
                path.unlink()
            elif how == "flip":
                with open(path, "r+b") as file:
                    file.seek(5000)
                    byte = file.read(1)
                    file.seek(5000)
                    file.write(bytes([byte[0] ^ 1]))
            else:
                os.truncate(path, {"cut": 8192, "empty": 0}[how])

    with evenkeel.open(rows, budget="8MiB", cache=cache) as a:
        np.testing.assert_array_equal(a[:], ROWS)
        assert blocks_in(tmp_path / "ek")
        if when == "after":
            damage()
            server.forget()
            np.testing.assert_array_equal(a[:], ROWS)
            assert server.requests != []
    if when == "before":
        damage()
    with evenkeel.open(rows, budget="8MiB", cache=cache) as a:
        np.testing.assert_array_equal(a[:], ROWS)
    server.forget()
    with evenkeel.open(rows, budget="8MiB", cache=cache) as a:  # they were stored again
        server.forget()
        np.testing.assert_array_equal(a[:], ROWS)
        assert server.requests == []


def test_a_small_budget_is_enough(server, rows, tmp_path):
    """Rows that are in two blocks each, with memory for a few."""
    data = np.random.default_rng(1).integers(0, 1 << 30, (40, 50_000), dtype=np.int32)
    url = server.put("wide.npy", npy(data))  # 200,000 bytes a row
    for _ in range(2):
        with evenkeel.open(url, budget="4MiB", cache=f"{tmp_path}/ek:64MiB") as a:
            for _ in range(2):
                got = [a[i] for i in np.random.default_rng(2).permutation(40)]
                np.testing.assert_array_equal(
                    np.stack(got), data[np.random.default_rng(2).permutation(40)]
                )
            assert a.budget.in_use <= a.budget.limit


def test_tokens_and_loaders_use_it(server, tmp_path):
    data = (np.arange(300_000) % 65521).astype(np.uint16)
    url = server.put("train.bin", data.tobytes())
    for epoch in range(2):
        tokens = evenkeel.tokens(url, budget="8MiB", cache=f"{tmp_path}/ek:64MiB")
        server.forget()
        with evenkeel.TokenLoader(tokens, 8, 100, order="shuffled", seed=2) as loader:
            for _, (x, y) in zip(range(300), loader):
                np.testing.assert_array_equal(x[:, 1:], y[:, :-1])
        assert (server.requests == []) == (epoch == 1)


def test_another_version_of_an_object_is_another(server, rows, tmp_path):
    cache = f"{tmp_path}/ek:64MiB"
    with evenkeel.open(rows, budget="8MiB", cache=cache) as a:
        np.testing.assert_array_equal(a[:], ROWS)
    server.put("rows.npy", npy(ROWS + 1))
    with evenkeel.open(rows, budget="8MiB", cache=cache) as a:
        np.testing.assert_array_equal(a[:], ROWS + 1)


def by_query(server, headers):
    """One path, two objects: the query chooses. `headers` tell their versions."""

    def respond(handler, path, query):
        data = npy(ROWS + ("which=1" in query))
        first, last = map(int, handler.headers["Range"][6:].split("-"))
        body = data[first : last + 1]
        place = f"bytes {first}-{first + len(body) - 1}/{len(data)}"
        return 206, {"Content-Range": place, **headers}, body

    server.respond = respond
    return [f"{server.url}/rows.npy?which={i}" for i in range(2)]


def test_the_query_is_part_of_the_key(server, tmp_path):
    for i, url in enumerate(by_query(server, {"ETag": '"same"'})):
        with evenkeel.open(url, budget="8MiB", cache=f"{tmp_path}/ek:64MiB") as a:
            np.testing.assert_array_equal(a[:], ROWS + i)


@pytest.mark.parametrize("headers", [{}, {"ETag": 'W/"weak"'}])
def test_what_has_no_exact_version_is_not_kept(server, headers, tmp_path):
    url = by_query(server, headers)[0]
    for _ in range(2):
        with evenkeel.open(url, budget="8MiB", cache=f"{tmp_path}/ek:64MiB") as a:
            np.testing.assert_array_equal(a[:], ROWS)
            assert a.stats()["bytes_from_disk_cache"] == 0


def test_the_limit_is_kept(server, rows, tmp_path):
    data = np.random.default_rng(1).integers(0, 1 << 30, (8, 1 << 20), dtype=np.int32)  # 32 MiB
    url = server.put("large.npy", npy(data))
    with evenkeel.open(url, budget="32MiB", cache=f"{tmp_path}/ek:16MiB") as a:
        for i in range(8):
            np.testing.assert_array_equal(a[i], data[i])
            assert on_disk(tmp_path / "ek") <= 16 << 20


def test_what_is_wrong_is_said(rows, tmp_path):
    np.save("local.npy", ROWS)
    with pytest.raises(ValueError, match="for URLs, and this is a file"):
        evenkeel.open("local.npy", cache="/tmp/x:1GiB")
    with pytest.raises(ValueError, match="less than 16 MiB"):
        evenkeel.open(rows, cache=f"{tmp_path}:1MiB")
    with pytest.raises(ValueError, match="does not end with a size"):
        evenkeel.open(rows, cache=f"{tmp_path}:much")


READER = """
import sys, numpy as np, evenkeel
wanted = np.load(sys.argv[2])
a = evenkeel.open(sys.argv[1], budget="8MiB", cache=sys.argv[3])
print("ready", flush=True)
while True:
    for rows, part in a.batches(600, True, with_index=True):
        if not (part == wanted[rows]).all():
            print("wrong bytes", flush=True)
            sys.exit(3)
"""


def test_killed_writers_leave_no_wrong_byte(server, rows, tmp_path):
    """Two processes share a cache that is too small, and are killed at any time, many times."""
    np.save(tmp_path / "wanted.npy", ROWS)
    cache = f"{tmp_path}/ek:16MiB"
    large = server.put("large.npy", npy(np.concatenate([ROWS] * 7)))
    np.save(tmp_path / "large.npy", np.concatenate([ROWS] * 7))
    kills = int(os.environ.get("EVENKEEL_KILLS", "6"))
    choose = random.Random(7)
    for number in range(kills):
        pairs = [(rows, "wanted.npy"), (large, "large.npy")]
        readers = [
            subprocess.Popen(
                [sys.executable, "-c", READER, url, str(tmp_path / name), cache],
                stdout=subprocess.PIPE,
            )
            for url, name in pairs
        ]
        try:
            for reader in readers:
                assert reader.stdout.readline() == b"ready\n"
            time.sleep(choose.random() * 0.2)  # anywhere in its work
            assert [reader.poll() for reader in readers] == [None, None]  # no wrong byte was found
        finally:  # they read for ever
            for reader in readers:
                reader.kill()
                reader.communicate()
        assert on_disk(tmp_path / "ek") <= (16 << 20) + 4096, number
    tool = os.environ.get("EVENKEEL_TOOL")
    with evenkeel.open(rows, budget="8MiB", cache=cache) as a:
        np.testing.assert_array_equal(a[:], ROWS)
    if tool:
        said = subprocess.run([tool, "cache", "verify", tmp_path / "ek"], capture_output=True)
        assert said.returncode == 0, said
