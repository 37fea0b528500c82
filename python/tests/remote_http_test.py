"""Arrays and tokens over HTTP: the same rows and batches as from files."""

import os
import pickle
import shutil
import subprocess

import numpy as np
import pytest
from remote_help import ObjectServer, npy

import evenkeel

ROWS = np.arange(3000 * 32, dtype=np.float32).reshape(3000, 32)


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("EVENKEEL_RETRY_DELAY", "0.001")
    with ObjectServer() as made:
        yield made


@pytest.fixture
def rows(server):
    return server.put("rows.npy", npy(ROWS))


def test_dask_tokens_tell_versions_apart(server, rows):
    tokenize = pytest.importorskip("dask.base").tokenize
    with evenkeel.open(rows) as a, evenkeel.open(rows) as again:
        assert tokenize(a) == tokenize(again)
        server.put("rows.npy", npy(ROWS + 1))  # of the same shape and size
        with evenkeel.open(rows) as other:
            assert tokenize(other) != tokenize(a)


def test_rows_are_those_of_the_file(server, rows):
    with evenkeel.open(rows, budget="8MiB") as a:
        assert a.engine.startswith("remote (range requests, ")
        assert "ETag" in a.engine
        assert a.shape == ROWS.shape and a.dtype == ROWS.dtype
        np.testing.assert_array_equal(a[17], ROWS[17])
        np.testing.assert_array_equal(a[100:2000:7], ROWS[100:2000:7])
        wanted = np.random.default_rng(1).integers(0, len(ROWS), 200)
        np.testing.assert_array_equal(a.take(wanted), ROWS[wanted])
        assert a.budget.in_use <= a.budget.limit
        stats = a.stats()
        assert stats["requests"] > 0 and stats["in_flight"] == 0
        assert stats["bytes_from_network"] > 0 and stats["bytes_from_disk"] == 0
        assert stats["retries"] == 0


def test_rows_asked_for_again_come_from_the_cache_in_memory(server, rows):
    with evenkeel.open(rows, budget="16MiB") as a:
        wanted = np.arange(0, 3000, 10)
        for _ in range(6):
            a.take(wanted)
        server.forget()
        np.testing.assert_array_equal(a.take(wanted), ROWS[wanted])
        assert server.bytes_sent == 0


def test_several_objects_are_one_array(server):
    urls = [server.put(f"part{i}.npy", npy(ROWS[i::3])) for i in range(3)]
    with evenkeel.open(urls, budget="8MiB") as a:
        np.testing.assert_array_equal(a[:], np.concatenate([ROWS[i::3] for i in range(3)]))


@pytest.mark.parametrize("shuffle", [False, True, "blocks"])
def test_batches_are_those_of_the_file(server, rows, tmp_path, shuffle):
    np.save(tmp_path / "rows.npy", ROWS)
    local = tmp_path / "rows.npy"
    with evenkeel.open(rows, budget="8MiB") as a, evenkeel.open(local, budget="8MiB") as b:
        for x, y in zip(a.batches(256, shuffle, seed=3), b.batches(256, shuffle, seed=3)):
            np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("order", ["random", "shuffled", "covering", "blocks"])
@pytest.mark.parametrize("faults", [False, True])
def test_training_batches_are_those_of_the_file(server, tmp_path, order, faults):
    data = (np.arange(60_000) * 7919 % 65521).astype(np.uint16)
    data.tofile(tmp_path / "train.bin")
    url = server.put("train.bin", data.tobytes())
    if faults:  # a fifth of the requests fails
        kinds = ["503", "reset", "short-body", "500", "close"]
        server.fault = lambda number: kinds[number // 5 % 5] if number % 5 == 4 else None
    options = {"batch_size": 8, "block_size": 64, "order": order, "seed": 5}
    here = evenkeel.tokens(tmp_path / "train.bin", budget="16MiB")
    there = evenkeel.tokens(url, budget="16MiB")
    assert there.fingerprint == here.fingerprint
    with evenkeel.TokenLoader(here, **options) as a, evenkeel.TokenLoader(there, **options) as b:
        for _, (x, y), (u, v) in zip(range(12), a, b):
            np.testing.assert_array_equal(x, u)
            np.testing.assert_array_equal(y, v)


@pytest.mark.parametrize("format", ["megatron", "datatrove"])
def test_documents_of_a_pair_of_objects(server, tmp_path, format):
    path = tmp_path / ("train.bin" if format == "megatron" else "train.ds")
    tokens = (np.arange(60_000) * 7919 % 65521).astype(np.uint16)
    with evenkeel.TokenWriter(path, format=format, dtype="uint16") as w:
        for document in np.split(tokens, 60):
            w.append(document)
            w.end_document()
    for file in tmp_path.iterdir():
        server.put(file.name, file.read_bytes())
    options = {"batch_size": 4, "block_size": 256, "documents": "mask", "seed": 5}
    here = evenkeel.tokens(path, budget="16MiB")
    there = evenkeel.tokens(f"{server.url}/{path.name}", budget="16MiB")
    with evenkeel.TokenLoader(here, **options) as a, evenkeel.TokenLoader(there, **options) as b:
        for _, one, other in zip(range(12), a, b):
            np.testing.assert_array_equal(one.x, other.x)
            np.testing.assert_array_equal(one.document_ids, other.document_ids)


@pytest.mark.filterwarnings("ignore::evenkeel.ShuffleWarning")
def test_each_rank_fetches_its_own_share(server):
    data = (np.arange(1 << 20) % 65521).astype(np.uint16)
    url = server.put("train.bin", data.tobytes())
    fetched = []
    for rank in range(2):
        tokens = evenkeel.tokens(url, budget="16MiB", cache=False)
        server.forget()
        loader = evenkeel.TokenLoader(
            tokens, 8, 128, order="blocks", seed=1, rank=rank, world=2, window="64KiB", streams=2
        )
        with loader:
            for _ in range((1 << 20) // 128 // 16):
                next(loader)
        fetched.append(server.bytes_sent)
    assert sum(fetched) < 1.5 * data.nbytes  # reading ahead adds a little


def test_a_child_of_fork_goes_on(server, rows):
    with evenkeel.open(rows, budget="8MiB") as a:
        a[0]
        child = os.fork()
        if child == 0:
            os._exit(0 if (a[99] == ROWS[99]).all() else 1)
        assert os.waitpid(child, 0)[1] == 0
        np.testing.assert_array_equal(a[98], ROWS[98])


def test_pickling_sends_the_url(server, rows):
    with evenkeel.open(rows, budget="8MiB") as a, pickle.loads(pickle.dumps(a)) as b:
        np.testing.assert_array_equal(b[5], ROWS[5])


def test_info(rows):
    what = evenkeel.info(rows)
    assert (what["format"], what["shape"], what["cached"]) == ("npy", ROWS.shape, None)


def test_signatures_in_urls_are_not_shown_or_stored(server, rows):
    secret = rows + "?X-Amz-Signature=123secret456"
    with evenkeel.open(secret, budget="8MiB") as a:
        np.testing.assert_array_equal(a[5], ROWS[5])
        shown = [repr(a), a._repr_html_(), a.describe()]
        with pytest.raises(ValueError, match="signature") as error:
            pickle.dumps(a)
        shown.append(str(error.value))
    with pytest.raises(FileNotFoundError) as missing:
        evenkeel.open(server.url + "/no.npy?X-Amz-Signature=123secret456")
    shown += [str(missing.value), str(missing.value.filename)]
    for text in shown:
        assert "secret" not in text


def test_what_is_not_there(server):
    with pytest.raises(FileNotFoundError, match="404"):
        evenkeel.open(server.url + "/none.npy")
    with pytest.raises(ValueError, match="cannot be asked which files match"):
        evenkeel.open(server.url + "/*.npy")
    with pytest.raises(ValueError, match="user name before the host") as error:
        evenkeel.open("https://me:123secret456@localhost/x.npy")
    assert "123secret" not in str(error.value)
    with pytest.raises(ValueError, match="reads files, but this is a URL"):
        evenkeel.open(server.put("x.npy", npy(ROWS)), engine="direct")
    with pytest.raises(ValueError, match="the file is empty"):
        evenkeel.open(server.put("empty.npy", b""))


def test_hdf5_is_read_from_local_files_only(server):
    url = server.put("x.h5", b"\x89HDF\r\n\x1a\n" + bytes(2000))
    with pytest.raises(ValueError, match="local files only"):
        evenkeel.open(url, name="x")


def test_redirects_are_followed_without_secrets(server, rows, monkeypatch):
    class Redirects(ObjectServer):
        to = ""

        def respond(self, handler, path, query):
            return 302, {"Location": self.to}, b""

    with Redirects() as front:
        front.to = rows
        with evenkeel.open(front.url + "/rows.npy", budget="8MiB") as a:
            np.testing.assert_array_equal(a[1234], ROWS[1234])
        front.to = "file:///etc/passwd"
        with pytest.raises(ValueError, match="not followed"):
            evenkeel.open(front.url + "/rows.npy")
        # Requests for buckets carry signatures: they are not redirected.
        monkeypatch.setenv("AWS_ENDPOINT_URL", front.url)
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AK")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "123secret456")
        front.to = rows
        server.forget()
        with pytest.raises(ValueError, match="not followed") as error:
            evenkeel.open("s3://bucket/rows.npy")
        assert "secret" not in str(error.value)
        assert server.requests == []


@pytest.mark.parametrize("to", ["/a/b/there.npy?x", "there.npy?x", "../b/there.npy?x", "?x"])
def test_redirects_may_be_relative(to):
    class Redirects(ObjectServer):
        asked = []

        def respond(self, handler, path, query):
            self.asked.append(handler.path)
            return (302, {"Location": to}, b"") if not query else super().respond(handler, path, "")

    with Redirects() as front:
        front.put("a/b/there.npy", npy(ROWS))
        front.put("a/b/here.npy", npy(ROWS))
        with evenkeel.open(front.url + "/a/b/here.npy", budget="8MiB") as a:
            np.testing.assert_array_equal(a[1234], ROWS[1234])
        assert front.asked[1] == ("/a/b/here.npy?x" if to == "?x" else "/a/b/there.npy?x")


def test_the_target_of_a_redirect_may_expire(monkeypatch):
    """While many requests are in flight: all of them go back to the address that redirects."""
    monkeypatch.setenv("EVENKEEL_HEDGE", "0")

    class Redirects(ObjectServer):
        to = "/first"

        def respond(self, handler, path, query):
            if path == "/rows.npy":
                return 302, {"Location": self.to}, b""
            if path != self.to:
                return 403, {}, b"expired"
            return super().respond(handler, "/stored", query)

    data = np.arange(6000 * 256, dtype=np.int32).reshape(6000, 256)
    wanted = np.arange(0, 6000, 500)  # too far apart to be read by one request
    with Redirects() as front:
        front.put("stored", npy(data))
        with evenkeel.open(front.url + "/rows.npy", budget="8MiB", cache=False) as a:
            np.testing.assert_array_equal(a.take(wanted), data[wanted])
            front.to = "/second"
            np.testing.assert_array_equal(a.take(wanted), data[wanted])


def test_without_libcurl_urls_are_refused_with_a_sentence(python, server, rows, tmp_path):
    if shutil.which("cc") is None:
        pytest.skip("no C compiler")
    (tmp_path / "empty.c").write_text("int nothing_of_curl;\n")
    library = ["cc", "-shared", "-o", str(tmp_path / "libcurl.so.4"), str(tmp_path / "empty.c")]
    subprocess.run(library, check=True)
    out = python(
        """
        import sys, evenkeel
        try:
            evenkeel.open(sys.argv[1])
        except ValueError as error:
            print(error)
        """,
        rows,
        LD_LIBRARY_PATH=str(tmp_path),
    )
    assert "URLs cannot be read here" in out and "hint: install libcurl" in out
