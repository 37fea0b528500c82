"""A relay between clients and a server on this machine: it counts bytes, and can delay requests.

Used by bench/remote.py and bench/remote_peers.py. Data from the server passes through a pipe in
the kernel (splice), so that the relay costs little; data from clients waits for the delay.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import socket
import threading
import time
from typing import Any

CHUNK = 1 << 20


def _up(client: socket.socket, server: socket.socket, delay: float) -> None:
    try:
        while data := client.recv(1 << 16):
            if delay:
                time.sleep(delay)
            server.sendall(data)
    except OSError:
        pass
    finally:
        for one in (client, server):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def _down(client: socket.socket, server: socket.socket, counter: Any) -> None:
    receive, send = os.pipe()
    try:
        while got := os.splice(server.fileno(), send, CHUNK):
            with counter.get_lock():
                counter.value += got
            while got:
                got -= os.splice(receive, client.fileno(), got)
    except OSError:
        pass
    finally:
        os.close(receive)
        os.close(send)
        client.close()
        server.close()


def _serve(listening: socket.socket, to: tuple[str, int], delay: float, counter: Any) -> None:
    while True:
        client, _ = listening.accept()
        server = socket.create_connection(to)
        for one in (client, server):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=_up, args=(client, server, delay), daemon=True).start()
        threading.Thread(target=_down, args=(client, server, counter), daemon=True).start()


class Relay:
    """A process that listens on `port` and forwards to `to`."""

    def __init__(self, to: tuple[str, int], delay_ms: float = 0) -> None:
        listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
        self.port = int(listening.getsockname()[1])
        self._counter: Any = multiprocessing.Value(ctypes.c_uint64, 0)
        self._process = multiprocessing.get_context("fork").Process(
            target=_serve, args=(listening, to, delay_ms / 1000, self._counter), daemon=True
        )
        self._process.start()
        listening.close()

    @property
    def bytes(self) -> int:
        """The bytes that the server has sent so far, header fields included."""
        return int(self._counter.value)

    def __enter__(self) -> Relay:
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.kill()
        self._process.join()
