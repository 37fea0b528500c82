"""Objects from a web server on this machine: Evenkeel beside `curl --parallel` and obstore.

usage: python bench/remote.py [--mib 512] [--latency MS] [--repeats 3]

nginx serves one file; each contestant fetches the same ranges of it. With --latency the server
lies in a network namespace of its own, behind `tc netem` (needs root). Figures are MB/s of wanted
bytes.
"""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import shutil
import socket
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator

import evenkeel
import numpy as np

CONFIG = """
daemon off; worker_processes 2; pid {at}/pid; error_log {at}/log crit;
events {{ worker_connections 1024; }}
http {{
  access_log off; root {at}/data; sendfile on; keepalive_requests 1000000;
  client_body_temp_path {at}/1; proxy_temp_path {at}/2; fastcgi_temp_path {at}/3;
  uwsgi_temp_path {at}/4; scgi_temp_path {at}/5;
  server {{ listen {address}:18480; }}
}}
"""
NAMESPACE = "evenkeel-bench"


@contextlib.contextmanager
def network(latency_ms: float) -> Iterator[tuple[str, list[str]]]:
    """The server's address, and the words before a command that runs there."""
    if latency_ms == 0:
        yield "127.0.0.1", []
        return

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True)

    ip("netns", "add", NAMESPACE)
    try:
        ip("link", "add", "ekb0", "type", "veth", "peer", "name", "ekb1", "netns", NAMESPACE)
        ip("addr", "add", "10.213.7.1/30", "dev", "ekb0")
        ip("link", "set", "ekb0", "up")
        ip("-n", NAMESPACE, "addr", "add", "10.213.7.2/30", "dev", "ekb1")
        ip("-n", NAMESPACE, "link", "set", "ekb1", "up")
        delay = ["tc", "qdisc", "add", "dev", "ekb0", "root", "netem"]
        if subprocess.run([*delay, "delay", f"{latency_ms}ms", "limit", "100000"]).returncode:
            raise SystemExit("remote.py: no latency here: tc or the kernel's netem is missing")
        yield "10.213.7.2", ["ip", "netns", "exec", NAMESPACE]
    finally:
        ip("netns", "del", NAMESPACE)


@contextlib.contextmanager
def nginx(at: pathlib.Path, address: str, prefix: list[str]) -> Iterator[str]:
    (at / "nginx.conf").write_text(CONFIG.format(at=at, address=address))
    tool = shutil.which("nginx") or "/usr/sbin/nginx"
    server = subprocess.Popen([*prefix, tool, "-p", str(at), "-c", str(at / "nginx.conf")])
    try:
        for _ in range(200):
            with contextlib.suppress(OSError):
                socket.create_connection((address, 18480), 1).close()
                break
            time.sleep(0.05)
        yield f"http://{address}:18480/data.bin"
    finally:
        server.terminate()
        server.wait()


def by_evenkeel(url: str, size: int, picks: np.ndarray) -> float:
    with evenkeel.open(url, dtype=f"V{size}", budget="512MiB", cache=False) as a:
        out = np.empty(max(1, (64 << 20) // size), f"V{size}")
        began = time.perf_counter()
        for first in range(0, len(picks), len(out)):
            part = picks[first : first + len(out)]
            a.take(part, out=out[: len(part)])
        return time.perf_counter() - began


def by_curl(url: str, size: int, picks: np.ndarray) -> float:
    words = "next\n".join(
        f'url="{url}"\nrange={i * size}-{(i + 1) * size - 1}\noutput=/dev/null\n' for i in picks
    )
    began = time.perf_counter()
    subprocess.run(
        ["curl", "-sS", "--no-progress-meter", "--parallel", "--parallel-max", "64", "-K", "-"],
        input=words.encode(),
        check=True,
        stderr=subprocess.DEVNULL,
    )
    return time.perf_counter() - began


def by_obstore(url: str, size: int, picks: np.ndarray) -> float:
    import obstore

    folder, _, name = url.rpartition("/")
    store = obstore.store.HTTPStore.from_url(folder, client_options={"allow_http": True})
    together = max(1, (64 << 20) // size)
    began = time.perf_counter()
    for first in range(0, len(picks), together):
        starts = [int(i) * size for i in picks[first : first + together]]
        obstore.get_ranges(store, name, starts=starts, lengths=[size] * len(starts))
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--latency", type=float, default=0, metavar="MS")
    parser.add_argument("--repeats", type=int, default=3)
    told = parser.parse_args()
    ways = {"evenkeel": by_evenkeel, "curl": by_curl}
    with contextlib.suppress(ImportError):
        import obstore.store  # noqa: F401

        ways["obstore"] = by_obstore
    with tempfile.TemporaryDirectory() as folder, network(told.latency) as (address, prefix):
        at = pathlib.Path(folder)
        at.chmod(0o755)
        (at / "data").mkdir()
        np.random.default_rng(0).integers(0, 256, told.mib << 20, np.uint8).tofile(
            at / "data/data.bin"
        )
        with nginx(at, address, prefix) as url:
            for size, count in ((4 << 20, told.mib // 8), (64 << 10, 2000)):
                rows = (told.mib << 20) // size
                picks = np.random.default_rng(size).permutation(rows)[:count]
                speeds: dict[str, list[float]] = {name: [] for name in ways}
                for _ in range(told.repeats):  # in turns: other load hits all alike
                    for name, way in ways.items():
                        speeds[name].append(len(picks) * size / way(url, size, picks) / 1e6)
                for name, each in speeds.items():
                    print(
                        f"{size >> 10:>5} KiB  {name:<9} {statistics.median(each):8.0f} MB/s"
                        f"  ({', '.join(f'{one:.0f}' for one in each)})"
                    )


if __name__ == "__main__":
    main()
