"""A server of objects on the loopback address, with faults that a test can choose."""

from __future__ import annotations

import hashlib
import http.server
import io
import re
import socket
import struct
import subprocess
import threading
import time
import urllib.parse
from typing import Any, Callable

import numpy as np

# What the server may do to one request. Each takes the handler and the answer it would give.
FAULTS = [
    "reset",  # the connection is reset before an answer
    "close",  # it is closed before an answer
    "reset-in-body",  # reset after half of the body
    "short-body",  # closed after half of the body
    "no-body",  # closed after the header fields
    "stall",  # sends nothing
    "stall-in-body",  # half of the body, then nothing
    "500",
    "503",  # SlowDown, with an error in XML
    "429",  # with Retry-After: 0
    "garbage",  # bytes that are not HTTP
]
# These must end in an error that says what is wrong.
LIES = ["ignores-range", "other-range", "no-range", "changed", "longer", "gone", "forbidden"]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def started(command: Callable[..., list[str]], ports: int) -> Any:
    """Starts a server on free ports, which `command` receives, and waits until it is ready. If
    another program takes one of the ports first, other ports are tried."""
    for _ in range(5):
        mine = [free_port() for _ in range(ports)]
        server = subprocess.Popen(
            command(*mine), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for _ in range(1200):
            try:
                socket.create_connection(("127.0.0.1", mine[0]), 1).close()
                time.sleep(0.05)
                if server.poll() is None:
                    return server, *mine
            except OSError:
                time.sleep(0.05)
            if server.poll() is not None:
                break
        server.kill()
        server.wait()
    raise AssertionError("the server does not start")


class ObjectServer:
    """Serves `objects` (path to bytes) with ETags and ranges; counts what it sends.

    `fault` is asked for each request, by its number from 0 on, for the fault to commit, or None.
    """

    def __init__(self, objects: dict[str, bytes] | None = None) -> None:
        self.objects = dict(objects or {})
        self.fault: Callable[[int], str | None] = lambda number: None
        self.requests: list[dict[str, Any]] = []
        self.bytes_sent = 0
        self.released = threading.Event()  # ends stalls
        self._lock = threading.Lock()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, *args: object) -> None:
                pass

            def do_GET(self) -> None:
                outer._serve(self)

            do_PUT = do_POST = do_GET

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 256

            def handle_error(self, *args: object) -> None:
                pass

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )
        self._thread.start()

    def __enter__(self) -> ObjectServer:
        return self

    def __exit__(self, *exc: object) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()

    def put(self, name: str, data: bytes) -> str:
        self.objects["/" + name] = data
        return f"{self.url}/{name}"

    def forget(self) -> None:
        with self._lock:
            self.requests.clear()
            self.bytes_sent = 0

    def respond(self, handler: Any, path: str, query: str) -> tuple[int, dict[str, str], bytes]:
        """Status, header fields and body. Subclasses serve other things, too."""
        data = self.objects.get(path)
        if data is None:
            return 404, {}, b"not here"
        etag = '"' + hashlib.md5(data).hexdigest() + '"'
        headers = {"ETag": etag, "Accept-Ranges": "bytes"}
        wanted = handler.headers.get("If-Match")
        if wanted is not None and wanted != etag:
            return 412, headers, b""
        match = re.fullmatch(r"bytes=(\d+)-(\d+)", handler.headers.get("Range", ""))
        if not match:
            return 200, headers, data
        first, last = int(match[1]), min(int(match[2]), len(data) - 1)
        if first >= len(data):
            return 416, {**headers, "Content-Range": f"bytes */{len(data)}"}, b""
        headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
        return 206, headers, data[first : last + 1]

    def _serve(self, handler: Any) -> None:
        path, _, query = handler.path.partition("?")
        with self._lock:
            number = len(self.requests)
            self.requests.append(
                {
                    "method": handler.command,
                    "path": handler.path,
                    "headers": dict(handler.headers),
                    "body": handler.rfile.read(int(handler.headers.get("Content-Length", 0))),
                }
            )
        fault = self.fault(number)
        if fault == "changed":
            name = urllib.parse.unquote(path)
            self.objects[name] = self.objects[name][::-1]
        status, headers, body = self.respond(handler, urllib.parse.unquote(path), query)
        if fault and not self._misbehave(handler, fault, status, headers, body):
            return
        if fault == "no-range":
            status, headers = 206, {k: v for k, v in headers.items() if k != "Content-Range"}
        elif fault == "ignores-range":
            data = self.objects[urllib.parse.unquote(path)]
            status, body = 200, data
            headers.pop("Content-Range", None)
        elif fault == "other-range" and "Content-Range" in headers:
            first = int(re.findall(r"\d+", headers["Content-Range"])[0])
            headers["Content-Range"] = f"bytes {first + 1}-{first + len(body)}/{1 << 40}"
        elif fault == "longer":
            total = headers.get("Content-Range", "/0").rpartition("/")[2]
            headers["Content-Range"] = headers.get("Content-Range", "").replace(
                f"/{total}", f"/{int(total) + 1}"
            )
        elif fault == "gone":
            status, headers, body = 404, {}, b""
        elif fault == "forbidden":
            status, headers, body = 403, {}, b"<Error><Code>AccessDenied</Code></Error>"
        self._send(handler, status, headers, body, len(body))

    def _send(
        self, handler: Any, status: int, headers: dict[str, str], body: bytes, n: int
    ) -> None:
        with self._lock:
            self.bytes_sent += n
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body[:n])
        handler.wfile.flush()

    def _misbehave(
        self, handler: Any, fault: str, status: int, headers: dict[str, str], body: bytes
    ) -> bool:
        """Commits a fault; true: answer as the fault says, or as always."""
        half = len(body) // 2
        if fault in ("500", "503", "429"):
            xml = b"<Error><Code>SlowDown</Code><Message>Later.</Message></Error>"
            extra = {"Retry-After": "0"} if fault == "429" else {}
            self._send(handler, int(fault), extra, xml, len(xml))
            return False
        if fault in ("reset-in-body", "short-body", "stall-in-body"):
            self._send(handler, status, headers, body, half)
        if fault == "no-body":
            self._send(handler, status, headers, body, 0)
        if fault == "garbage":
            handler.wfile.write(b"\x00\x01 not HTTP at all\r\n\r\n")
        if fault.startswith("stall"):
            self.released.wait(20)
        if fault.startswith("reset"):
            handler.connection.setsockopt(
                socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
            )
            handler.connection.close()
        if fault in (*FAULTS,):
            handler.close_connection = True
            return False
        return True


def npy(array: np.ndarray[Any, Any]) -> bytes:
    """The array as an NPY file."""
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()
