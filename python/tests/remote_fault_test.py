"""Servers that fail: right data or a clear error, at every request of a job."""

import gzip

import numpy as np
import pytest
from remote_help import FAULTS, LIES, ObjectServer, npy

import evenkeel

ROWS = np.arange(600 * 64, dtype=np.int32).reshape(600, 64)


@pytest.fixture(scope="module")
def stored():
    return npy(ROWS)


@pytest.fixture(autouse=True)
def settings(monkeypatch):
    monkeypatch.setenv("EVENKEEL_RETRY_DELAY", "0.001")
    monkeypatch.setenv("EVENKEEL_STALL_TIMEOUT", "0.3")
    monkeypatch.setenv("EVENKEEL_ATTEMPTS", "50")  # a busy machine stalls, too
    monkeypatch.setenv("EVENKEEL_HEDGE", "0")


def job(url):
    """A few requests: the header, single rows, a scan."""
    with evenkeel.open(url, budget="4MiB", cache=False) as a:
        parts = [a[3], a.take([599, 10, 300])]
        parts += list(a.batches(200))
        assert a.budget.in_use <= a.budget.limit
        return np.concatenate([part.reshape(-1) for part in parts]), a.stats()


def wanted():
    return np.concatenate([ROWS[3], ROWS[[599, 10, 300]].reshape(-1), ROWS.reshape(-1)])


@pytest.fixture(scope="module")
def requests(stored):
    with ObjectServer() as server:
        result, _ = job(server.put("rows.npy", stored))
        np.testing.assert_array_equal(result, wanted())
        assert 4 <= len(server.requests) <= 12
        return len(server.requests)


@pytest.mark.parametrize("fault", FAULTS)
def test_one_failure_anywhere_changes_nothing(stored, requests, fault):
    for at in range(requests):
        with ObjectServer() as server:
            server.fault = lambda number, at=at: fault if number == at else None
            result, stats = job(server.put("rows.npy", stored))
            np.testing.assert_array_equal(result, wanted())
            assert len(server.requests) > requests
            assert stats["in_flight"] == 0


@pytest.mark.parametrize("lie", LIES)
def test_one_lie_anywhere_is_an_error_that_says_so(stored, requests, lie, monkeypatch):
    monkeypatch.setenv("EVENKEEL_STALL_TIMEOUT", "60")
    says = {
        "ignores-range": "ignores ranges",
        "other-range": "the server answered with",
        "no-range": "the server answered with",
        "changed": "changed since it was opened",
        "longer": "changed since it was opened|more rows|bytes",
        "gone": "404",
        "forbidden": "403 AccessDenied",
    }[lie]
    for at in range(requests):
        with ObjectServer() as server:
            server.fault = lambda number, at=at: lie if number == at else None
            url = server.put("rows.npy", stored)
            # The element type is looked at first, by itself: what changes then is not seen.
            if (lie == "changed" and at <= 1) or (lie == "longer" and at == 0):
                continue
            with pytest.raises((ValueError, OSError), match=says):
                job(url)


def test_a_server_that_always_fails_is_given_up_with_the_history(stored, monkeypatch):
    monkeypatch.setenv("EVENKEEL_STALL_TIMEOUT", "60")
    monkeypatch.setenv("EVENKEEL_ATTEMPTS", "4")
    with ObjectServer() as server:
        url = server.put("rows.npy", stored)
        kinds = ["503", "reset", "503", "500"]
        server.fault = lambda number: kinds[number % 4]
        with pytest.raises(OSError, match="4 attempts in .* the last: ") as error:
            job(url)
        assert "SlowDown" in str(error.value) and "before:" in str(error.value)
        assert len(server.requests) >= 4


def test_a_read_that_is_given_up_names_the_url_and_the_byte(stored, monkeypatch):
    monkeypatch.setenv("EVENKEEL_STALL_TIMEOUT", "60")
    monkeypatch.setenv("EVENKEEL_ATTEMPTS", "2")
    with ObjectServer() as server:
        url = server.put("rows.npy", stored)
        with evenkeel.open(url, budget="4MiB", cache=False) as a:
            server.fault = lambda number: "503"
            with pytest.raises(OSError, match="2 attempts in .* the last: .*SlowDown") as error:
                a[300]
            assert f"read {url}: " in str(error.value)
            assert f"(at byte {len(stored) - 300 * 256})" in str(error.value)
            assert error.value.filename == url


def test_a_part_that_arrived_is_not_asked_for_again(stored, monkeypatch):
    monkeypatch.setenv("EVENKEEL_STALL_TIMEOUT", "60")
    with ObjectServer() as server:
        url = server.put("rows.npy", stored)
        with evenkeel.open(url, budget="4MiB", cache=False) as a:
            server.forget()
            server.fault = lambda number: "short-body" if number == 0 else None
            np.testing.assert_array_equal(a[:], ROWS)
            assert a.stats()["retries"] == 1
        ranges = [tuple(map(int, r["headers"]["Range"][6:].split("-"))) for r in server.requests]
        first, again = (one for one in ranges if one[1] == ranges[0][1])
        assert again[0] == (first[0] + first[1] + 1) // 2


def test_attempts_count_anew_when_bytes_arrive(stored):
    """Each answer ends after half of the requested bytes: reading is slow, but succeeds."""
    with ObjectServer() as server:
        url = server.put("rows.npy", stored)
        with evenkeel.open(url, budget="4MiB", cache=False) as a:
            server.fault = lambda number: "short-body" if number % 2 else None
            np.testing.assert_array_equal(a[:], ROWS)


def test_late_requests_are_made_twice(stored, monkeypatch):
    monkeypatch.setenv("EVENKEEL_HEDGE", "1")
    monkeypatch.setenv("EVENKEEL_STALL_TIMEOUT", "5")
    with ObjectServer() as server:
        url = server.put("rows.npy", stored)
        with evenkeel.open(url, budget="4MiB", cache=False) as a:
            for i in range(80):  # how long a request takes must be known
                a[i]
            server.forget()
            server.fault = lambda number: "stall" if number == 0 else None
            np.testing.assert_array_equal(a[500], ROWS[500])
            assert a.stats()["hedges"] >= 1


def test_closing_does_not_wait_for_a_server_that_does_not_answer(stored, monkeypatch):
    monkeypatch.setenv("EVENKEEL_STALL_TIMEOUT", "600")
    data = np.arange(100_000, dtype=np.uint16).tobytes()
    with ObjectServer() as server:
        tokens = evenkeel.tokens(server.put("train.bin", data), budget="16MiB")
        server.fault = lambda number: "stall"
        loader = evenkeel.TokenLoader(tokens, 4, 64)
        loader.close()  # would take 600 seconds


def test_opening_is_given_up_when_every_body_is_short(stored, monkeypatch):
    """Bytes that came and were not kept are no progress."""
    monkeypatch.setenv("EVENKEEL_STALL_TIMEOUT", "60")
    monkeypatch.setenv("EVENKEEL_ATTEMPTS", "4")
    with ObjectServer() as server:
        url = server.put("rows.npy", stored)
        server.fault = lambda number: "short-body"
        with pytest.raises(OSError, match="4 attempts"):
            evenkeel.open(url)
        assert len(server.requests) == 4


def test_trailers_after_a_body_say_nothing(stored):
    with ObjectServer() as server:
        url = server.put("rows.npy", stored)

        def send(handler, status, headers, body, n):
            handler.send_response(status)
            for name, value in headers.items():
                handler.send_header(name, value)
            handler.send_header("Transfer-Encoding", "chunked")
            handler.end_headers()
            trailers = b"Content-Range: none\r\nETag: other\r\n\r\n"
            handler.wfile.write(b"%x\r\n%s\r\n0\r\n%s" % (len(body), body, trailers))

        server._send = send
        with evenkeel.open(url, budget="4MiB", cache=False) as a:
            np.testing.assert_array_equal(a[:], ROWS)


def test_closing_does_not_wait_for_another_loader(stored, monkeypatch):
    monkeypatch.setenv("EVENKEEL_STALL_TIMEOUT", "600")
    data = np.arange(100_000, dtype=np.uint16).tobytes()
    with ObjectServer() as server:
        tokens = evenkeel.tokens(server.put("train.bin", data), budget="32MiB")
        server.fault = lambda number: "stall"
        first = evenkeel.TokenLoader(tokens, 4, 64)
        second = evenkeel.TokenLoader(tokens, 4, 64, seed=1)
        second.close()  # while the first waits, for up to 600 seconds
        first.close()


def test_requests_a_second_are_limited(stored, monkeypatch):
    monkeypatch.setenv("EVENKEEL_REQUESTS_PER_SECOND", "0.5x")
    with ObjectServer() as server:
        url = server.put("rows.npy", stored)
        with pytest.raises(ValueError, match="EVENKEEL_REQUESTS_PER_SECOND"):
            evenkeel.open(url)


def test_no_byte_of_another_version_is_written():
    """So a request that loses to a second one does not spoil what that one brought."""
    rows = np.arange(1, 4001, dtype=np.float32).reshape(1000, 4)
    data = npy(-rows)
    with ObjectServer() as server:
        url = server.put("rows.npy", npy(rows))
        with evenkeel.open(url, budget="8MiB", cache=False) as a:

            def respond(handler, path, query):  # it ignores If-Match
                first, last = map(int, handler.headers["Range"][6:].split("-"))
                body = data[first : last + 1]
                place = f"bytes {first}-{first + len(body) - 1}/{len(data)}"
                return 206, {"Content-Range": place, "ETag": '"other"'}, body

            server.respond = respond
            out = np.zeros((1, 4), np.float32)
            with pytest.raises(ValueError, match="its ETag was"):
                a.take([700], out=out)
            assert not out.any()


class Told(ObjectServer):
    """Changes its answers with `change`, which is called once it is set."""

    change = staticmethod(lambda answer: answer)

    def respond(self, handler, path, query):
        return self.change(super().respond(handler, path, query))


@pytest.mark.parametrize("opened", [False, True])
def test_a_compressed_body_is_no_data(stored, opened):
    """A proxy that compresses answers changes their bytes and leaves Content-Range as it was."""

    def compressed(answer):
        status, headers, body = answer
        return status, {**headers, "Content-Encoding": "gzip"}, gzip.compress(body)

    with Told() as server:
        url = server.put("tokens.bin", np.random.default_rng(1).bytes(300_000))
        if not opened:
            server.change = compressed
            with pytest.raises(ValueError, match=r"compressed \(Content-Encoding: gzip\)"):
                evenkeel.tokens(url, budget="4MiB")
            return
        tokens = evenkeel.tokens(url, budget="4MiB")
        server.change = compressed
        with pytest.raises(ValueError, match=r"compressed \(Content-Encoding: gzip\)"):
            tokens[100_000:100_200]


def test_an_object_with_bytes_is_not_empty(stored):
    """Some servers answer 416 if the requested range ends behind the object."""
    with Told() as server:
        url = server.put("tokens.bin", bytes(600))
        server.change = lambda answer: (416, {"Content-Range": "bytes */600"}, b"")
        with pytest.raises(ValueError, match="there are none .416. in an object of 600 bytes"):
            evenkeel.tokens(url, budget="4MiB")


def test_without_an_etag_the_date_is_compared(stored):
    """The ETag may be missing in later answers only, because another server gave them."""
    with Told() as server:
        url = server.put("rows.npy", stored)
        monday, tuesday = "Mon, 02 Nov 2026 00:00:00 GMT", "Tue, 03 Nov 2026 00:00:00 GMT"

        def dated(date, names):
            return lambda answer: (
                answer[0],
                {"Last-Modified": date, **{n: answer[1][n] for n in names if n in answer[1]}},
                answer[2],
            )

        server.change = dated(monday, ["ETag", "Content-Range"])
        with evenkeel.open(url, budget="4MiB", cache=False) as a:
            server.change = dated(monday, ["Content-Range"])
            np.testing.assert_array_equal(a[300], ROWS[300])
            server.change = dated(tuesday, ["Content-Range"])
            with pytest.raises(ValueError, match="it was written Tue, 03 Nov 2026"):
                a[400]
