"""What a user does in the first minute, and what depends on how a wheel was built: exceptions that
cross from C++ to Python, io_uring, the guard's library, the tool. scripts/test_wheels runs this in
many places. It writes to the folder it runs in, and ends with one line of facts.

usage: try_wheel.py [--emulated]    (io_uring and the guard need not work under an emulator)
"""

import ctypes
import http.server
import os
import subprocess
import sys
import sysconfig
import threading

import evenkeel
import numpy as np

emulated = "--emulated" in sys.argv
np.save("rows.npy", np.arange(4_000_000, dtype="float32").reshape(-1, 4))
(np.arange(6_000_000) % 50257).astype("uint16").tofile("train.bin")

a = evenkeel.open("rows.npy", budget="2MiB")
assert (a[[5, 999_999], 1] == [21, 3_999_997]).all()
assert sum(len(b) for b in a.batches(10_000, shuffle=True, seed=1)) == 1_000_000
shared = evenkeel.Budget("8MiB")
pair = evenkeel.open("rows.npy", budget=shared), evenkeel.open("rows.npy", budget=shared)
for order in ("shuffled", "blocks"):
    with evenkeel.Loader(pair, 4096, order=order, seed=1, steps=20) as rows:
        for left, right in rows:
            assert (left == right).all() and len(left) == 4096
train = evenkeel.tokens("train.bin", budget="8MiB")
for x, y in evenkeel.TokenLoader(train, 12, 1024, seed=1, steps=50):
    assert (x[:, 1:] == y[:, :-1]).all() and x.dtype == np.int64
for wrong, error in (
    (lambda: evenkeel.open("missing.npy"), FileNotFoundError),
    (lambda: evenkeel.open("train.bin"), ValueError),
    (lambda: evenkeel.open("rows.npy", budget=1000), MemoryError),
    (lambda: a[10**9], IndexError),
):
    try:
        wrong()
        raise SystemExit("no error")
    except error as caught:
        assert str(caught)
m = evenkeel.memmap("rows.raw", "float32", "w+", shape=(1000,), budget="32MiB")
m[:] = 7
assert (np.fromfile("rows.raw", "float32") == 7).all()
direct = evenkeel.open("rows.npy", budget="2MiB", engine="direct")
assert (direct[[5, 999_999], 1] == [21, 3_999_997]).all()
ring = "io_uring," in direct.engine
if not ring:  # a fallback is never silent
    assert "threads" in direct.engine and "io_uring" in direct.engine, direct.engine


class Server(http.server.BaseHTTPRequestHandler):
    """Answers range requests for one file."""

    protocol_version = "HTTP/1.1"
    data = open("rows.npy", "rb").read()

    def do_GET(self):
        first, last = self.headers["Range"].split("=")[1].split("-")
        part = self.data[int(first) : int(last) + 1]
        self.send_response(206)
        self.send_header("ETag", '"1"')
        self.send_header(
            "Content-Range", f"bytes {first}-{int(first) + len(part) - 1}/{len(self.data)}"
        )
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        self.wfile.write(part)

    def log_message(self, *words):
        pass


def has_curl():
    for name in ("libcurl.so.4", "libcurl-gnutls.so.4", "libcurl.so"):
        try:
            return bool(ctypes.CDLL(name))
        except OSError:
            continue
    return False


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server)
threading.Thread(target=server.serve_forever, daemon=True).start()
os.environ["no_proxy"] = "127.0.0.1"
url = f"http://127.0.0.1:{server.server_port}/rows.npy"
if has_curl():  # a wheel brings the code for URLs, the system brings libcurl
    remote = evenkeel.open(url, budget="16MiB")
    assert (remote[[5, 999_999], 1] == [21, 3_999_997]).all()
else:
    try:
        evenkeel.open(url, budget="16MiB")
        raise SystemExit("no error")
    except ValueError as caught:
        assert "libcurl was not found" in str(caught), caught
server.shutdown()

tool = [sys.executable, "-m", "evenkeel"]


def said_by(*command):
    return subprocess.run([*tool, *command], capture_output=True, text=True)


assert said_by("--version").stdout == f"evenkeel {evenkeel.__version__}\n"
assert "float32" in said_by("info", "rows.npy").stdout
doctor = said_by("doctor")
assert doctor.returncode == 0 and "io_uring" in doctor.stdout, doctor.stderr
program = "import numpy; print(int(numpy.memmap('train.bin', 'uint16', 'r').astype('i8').sum()))"
guarded = said_by("guard", "--budget", "64MiB", "--", sys.executable, "-c", program)
assert guarded.returncode == 0, guarded.stderr
assert int(guarded.stdout) == int(np.fromfile("train.bin", "uint16").astype("i8").sum())
unguarded = "unguarded" in guarded.stderr or "not guarded" in guarded.stderr
print(
    f"Python {sys.version.split()[0]}, NumPy {np.__version__}, {'io_uring' if ring else 'threads'},"
    f" guard {'not loaded' if unguarded else 'loaded'}, URLs {'read' if has_curl() else 'refused'},"
    f" user {os.getuid()},"
    f" {sysconfig.get_platform()}"
)
if unguarded and not emulated:
    raise SystemExit(guarded.stderr)
