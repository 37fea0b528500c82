"""Objects from a web server on this machine: Evenkeel compared with `curl --parallel`, obstore,
rclone.

usage: python bench/remote.py [ranges] [cache] [--mib 512] [--latency 0,20] [--budget 64]
                              [--repeats 3]

ranges: nginx serves one file, and each contestant fetches the same ranges of it; rclone, which
cannot, reads as many bytes in order. --latency: adds this many milliseconds, by `tc netem` in its
own network namespace (needs root and the kernel's netem; Debian: iproute2), or otherwise by nginx,
which waits before each answer (Debian's nginx-light has the module for it).

cache: epochs of a process with a cache on disk that holds the data, compared with the same epochs
from the local file, whose pages are dropped from the page cache first. The first epoch of a process
compares the checksums of blocks; the figures of later epochs are medians of four. Arrays of URLs
and the engine `auto`, the default for files, also keep rows in memory; the engine `direct` does
not.

Figures are MB/s of wanted bytes, with processor seconds of the client for each GB. Contestants
alternate, and each runs in its own process. bench/remote_peers.py compares whole loaders.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pathlib
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

import numpy as np

CONFIG = """
{module}daemon off; worker_processes 2; pid {at}/pid; error_log {at}/log crit;
events {{ worker_connections 1024; }}
http {{
  access_log off; root {at}/data; sendfile on; keepalive_requests 1000000;
  client_body_temp_path {at}/1; proxy_temp_path {at}/2; fastcgi_temp_path {at}/3;
  uwsgi_temp_path {at}/4; scgi_temp_path {at}/5;
  server {{ listen {address}:{port}; {answer} }}
}}
"""
ECHO_MODULE = "/usr/lib/nginx/modules/ngx_http_echo_module.so"
NAMESPACE = "evenkeel-bench"
IN_FLIGHT = 64
PORT = 18480


@contextlib.contextmanager
def late_network(latency_ms: float) -> Iterator[tuple[str, list[str]]]:
    """The server's address, and the words before a command that runs there."""

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
        delay += ["delay", f"{latency_ms}ms", "limit", "100000"]
        subprocess.run(delay, check=True, stderr=subprocess.DEVNULL)
        yield "10.213.7.2", ["ip", "netns", "exec", NAMESPACE]
    finally:
        ip("netns", "del", NAMESPACE)


@contextlib.contextmanager
def nginx(at: pathlib.Path, address: str, prefix: list[str], wait_ms: float) -> Iterator[str]:
    module = answer = ""
    if wait_ms:
        module = f"load_module {ECHO_MODULE};\n"
        wait = f"echo_sleep {wait_ms / 1000:.3f}; echo_exec @file;"
        answer = f"location / {{ {wait} }} location @file {{ }}"
    words = {"at": at, "address": address, "port": PORT, "module": module, "answer": answer}
    (at / "nginx.conf").write_text(CONFIG.format(**words))
    tool = shutil.which("nginx") or "/usr/sbin/nginx"
    server = subprocess.Popen([*prefix, tool, "-p", str(at), "-c", str(at / "nginx.conf")])
    try:
        for _ in range(200):
            with contextlib.suppress(OSError):
                socket.create_connection((address, PORT), 1).close()
                break
            time.sleep(0.05)
        yield f"http://{address}:{PORT}/data.bin"
    finally:
        server.terminate()
        server.wait()


@contextlib.contextmanager
def late_nginx(at: pathlib.Path, latency_ms: float) -> Iterator[tuple[str, str]]:
    """Its URL, and how the latency is added."""
    with contextlib.ExitStack() as stack:
        address, prefix, wait_ms, how = "127.0.0.1", list[str](), latency_ms, "nginx waits"
        if latency_ms:
            try:
                address, prefix = stack.enter_context(late_network(latency_ms))
                wait_ms, how = 0, "netem"
            except (OSError, subprocess.CalledProcessError):  # no `ip`, no netem, or not allowed
                pass
        url = stack.enter_context(nginx(at, address, prefix, wait_ms))
        yield url, how if latency_ms else "none"


# Each contestant takes the URL, the length of a range and the numbers of the ranges. It returns
# wall-clock and CPU seconds. Setup before the first request is not timed, nor is fresh memory:
# buffers are reused.


def timed(work: Callable[[], object]) -> tuple[float, float]:
    def used() -> float:
        return sum(
            sum(resource.getrusage(who)[:2])
            for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        )

    began, before = time.perf_counter(), used()
    work()
    return time.perf_counter() - began, used() - before


def by_evenkeel(url: str, size: int, picks: np.ndarray) -> tuple[float, float]:
    import evenkeel

    out = np.zeros(len(picks), f"V{size}")
    out.view(np.uint8)[::4096] = 1
    with evenkeel.open(url, dtype=f"V{size}", budget="512MiB", cache=False) as a:
        a.take(picks[:64], out=out[:64])
        return timed(lambda: a.take(picks, out=out))


def by_curl(url: str, size: int, picks: np.ndarray) -> tuple[float, float]:
    words = "next\n".join(
        f'url="{url}"\nrange={i * size}-{(i + 1) * size - 1}\noutput=/dev/null\n' for i in picks
    )
    command = ["curl", "-sS", "--no-progress-meter", "--parallel", "--parallel-max", str(IN_FLIGHT)]
    return timed(lambda: subprocess.run([*command, "-K", "-"], input=words.encode(), check=True))


def by_obstore(url: str, size: int, picks: np.ndarray) -> tuple[float, float]:
    import obstore

    folder, _, name = url.rpartition("/")
    store = obstore.store.HTTPStore.from_url(folder, client_options={"allow_http": True})
    together = max(1, (64 << 20) // size)

    def work() -> None:
        for first in range(0, len(picks), together):
            starts = [int(i) * size for i in picks[first : first + together]]
            obstore.get_ranges(store, name, starts=starts, lengths=[size] * len(starts))

    return timed(work)


def by_rclone(url: str, size: int, picks: np.ndarray) -> tuple[float, float]:
    """It cannot read many ranges at once, so it reads as much of the file in one stream."""
    tool = shutil.which(
        "rclone", path=f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    )
    if tool is None:
        raise ImportError("rclone")
    folder, _, name = url.rpartition("/")
    command = [tool, "cat", "--config", "/dev/null", "--http-url", folder, f":http:{name}"]
    command += ["--count", str(len(picks) * size)]
    return timed(lambda: subprocess.run(command, stdout=subprocess.DEVNULL, check=True))


WAYS = {"evenkeel": by_evenkeel, "curl": by_curl, "obstore": by_obstore, "rclone": by_rclone}


def run_one(name: str, url: str, size: int, rows: int, count: int) -> None:
    picks = np.random.default_rng(size).permutation(rows)[:count]
    seconds, processor = WAYS[name](url, size, picks)
    gigabytes = len(picks) * size / 1e9
    print(json.dumps([gigabytes * 1e3 / seconds, processor / gigabytes]))


def ask(words: list[str]) -> list[float] | None:
    """The output of a new process; None: a library is missing."""
    got = subprocess.run(
        [sys.executable, __file__, *words], capture_output=True, text=True, check=False
    )
    if got.returncode != 0:
        if "ImportError" in got.stderr or "ModuleNotFoundError" in got.stderr:
            return None
        raise SystemExit(got.stderr)
    return list(json.loads(got.stdout))


def show(what: str, results: dict[str, list[list[float]]], processor: bool) -> None:
    for name, each in results.items():
        speeds = [one[0] for one in each]
        line = f"{what}  {name:<20} {statistics.median(speeds):7.0f} MB/s"
        if processor:
            line += f"  {statistics.median(one[1] for one in each):5.2f} CPU s/GB"
        print(f"{line}  ({', '.join(f'{one:.0f}' for one in speeds)})", flush=True)


def ranges(args: argparse.Namespace, at: pathlib.Path, latency_ms: float) -> None:
    with late_nginx(at, latency_ms) as (url, how):
        for size, count in ((4 << 20, args.mib // 8), (64 << 10, 2000)):
            results: dict[str, list[list[float]]] = {}
            for _ in range(args.repeats):  # alternating, so that other load affects all alike
                for name in WAYS:
                    words = ["--one", name, url, str(size), str((args.mib << 20) // size)]
                    if got := ask([*words, str(min(count, (args.mib << 20) // size))]):
                        results.setdefault(name, []).append(got)
            show(f"{size >> 10:>5} KiB  +{latency_ms:g} ms ({how})", results, True)
            ours = statistics.median(one[0] for one in results.pop("evenkeel"))
            results.pop("rclone", None)  # it reads in order
            best = max(statistics.median(one[0] for one in each) for each in results.values())
            print(f"{'':13}ratio to the fastest that fetches these ranges: {ours / best:.2f}")


def run_epochs(source: str, cache: str, order: str, row: int, budget: str) -> None:
    """Prints MB/s and processor seconds per GB: of the first epoch of this process, and of the
    median of the next four; and what was fetched meanwhile."""
    import evenkeel

    options = {"cache": cache} if "://" in source else {"engine": cache}
    order, _, block = order.partition(" ")
    shuffle = {"sequential": False, "shuffled": True, "blocks": "blocks"}[order]
    how = {"block": block} if block else {}
    epochs = []
    with evenkeel.open(source, dtype=f"V{row}", budget=budget, **options) as a:
        for epoch in range(5):

            def work(epoch: int = epoch) -> None:
                for _ in a.batches(max(1, (1 << 20) // row), shuffle, seed=3, epoch=epoch, **how):
                    pass

            epochs.append(timed(work))
        fetched = a.stats()["bytes_from_network"]
        later = [statistics.median(each) for each in zip(*epochs[1:], strict=True)]
        figures = []
        for seconds, processor in (epochs[0], later):
            figures += [a.nbytes / seconds / 1e6, processor / (a.nbytes / 1e9)]
        print(json.dumps([*figures, fetched]))


def cache(args: argparse.Namespace, at: pathlib.Path) -> None:
    file = at / "data/data.bin"
    with late_nginx(at, 0) as (url, _):
        contestants = {
            "local file, direct": (str(file), "direct"),
            "local file, auto": (str(file), "auto"),
            "URL, cache on disk": (url, f"{at}/cache:{2 * args.mib + 64}MiB"),
        }
        cases = [("sequential", 4096), ("blocks", 4096), ("blocks 512KiB", 4096)]
        for order, row in [*cases, ("shuffled", 65536)]:
            results: dict[str, list[list[float]]] = {name: [] for name in contestants}
            for turn in range(args.repeats + 1):
                for name, (source, where) in contestants.items():
                    os.posix_fadvise(fd := os.open(file, os.O_RDONLY), 0, 0, os.POSIX_FADV_DONTNEED)
                    os.close(fd)
                    got = ask(["--epochs", source, where, order, str(row), f"{args.budget}MiB"])
                    if turn == 0:  # it fills the cache
                        continue
                    assert got is not None and got[4] == 0, "all of it is in the cache"
                    results[name].append(got)
            what = f"{order:<13} rows of {row >> 10:>2} KiB"
            show(f"{what}  first epoch ", results, True)
            show(f"{what}  later epochs", {k: [g[2:] for g in v] for k, v in results.items()}, True)


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        name, url, *numbers = sys.argv[2:]
        return run_one(name, url, *map(int, numbers))
    if sys.argv[1:2] == ["--epochs"]:
        source, where, order, row, budget = sys.argv[2:]
        return run_epochs(source, where, order, int(row), budget)
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("what", nargs="*", default=["ranges", "cache"])
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--budget", type=int, default=64, metavar="MIB", help="of `cache`")
    parser.add_argument("--latency", default="0,20", metavar="MS")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        at = pathlib.Path(folder)
        at.chmod(0o755)
        (at / "data").mkdir()
        np.random.default_rng(0).integers(0, 256, args.mib << 20, np.uint8).tofile(
            at / "data/data.bin"
        )
        if "ranges" in args.what:
            for latency in args.latency.split(","):
                ranges(args, at, float(latency))
        if "cache" in args.what:
            cache(args, at)


if __name__ == "__main__":
    main()
