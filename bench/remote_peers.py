"""A first, shuffled epoch of rows from S3: Evenkeel compared with loaders and clients of object
storage.

usage: python bench/remote_peers.py [--mib 256] [--repeats 3] [--latency 0] [--only NAME,NAME]

nginx serves the data on the loopback address: to a client it looks like S3 that does not check
signatures. A relay in between counts the bytes (bench/relay.py). A sample is a row of 1,024
float32. Each contestant reads an epoch in its own process, in batches of 64,
alternating with the others:

  evenkeel (blocks)     one .npy object, shuffle="blocks", block="512KiB", budget 128 MiB
  evenkeel (exact)      the same object, exact shuffling: a request for each row
  mosaicml-streaming    MDS shards of 16 MiB, shuffle=True, its default algorithm
  litdata               chunks of 16 MiB, shuffle=True
  obstore, s3fs         one object; the rows of each batch as ranges, exact shuffling
  smart_open            the same, seek and read

The checksum of all rows must be right. Memory is the growth of RssAnon and of files in the page
cache that the contestant wrote (its local copies). Contestants that are not installed are left out.
Needs nginx, and bench/requirements-remote.txt.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from relay import Relay

from remote import PORT, nginx

KEY, SECRET = "AKEVENKEELBENCH", "secret-of-the-bench"
WIDTH, BATCH = 1024, 64
SHARD = 16 << 20
Epoch = Iterator[np.ndarray]


def contents(rows: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 1 << 20, (rows, WIDTH)).astype(np.float32)


def exact_order(rows: int) -> Iterator[np.ndarray]:
    order = np.random.default_rng(1).permutation(rows)
    for first in range(0, rows, BATCH):
        yield order[first : first + BATCH]


def header_bytes() -> int:
    return 128  # of an .npy file of such a shape


def evenkeel_epoch(shuffle: Any) -> Callable[[int, pathlib.Path], Epoch]:
    def epoch(rows: int, scratch: pathlib.Path) -> Epoch:
        import evenkeel

        block = "512KiB" if shuffle == "blocks" else None
        with evenkeel.open("s3://bucket/rows.npy", budget="128MiB", cache=False) as a:
            yield from a.batches(BATCH, shuffle, seed=1, block=block)

    return epoch


def streaming_epoch(rows: int, scratch: pathlib.Path) -> Epoch:
    from streaming import StreamingDataset
    from torch.utils.data import DataLoader

    os.environ["S3_ENDPOINT_URL"] = os.environ["AWS_ENDPOINT_URL"]
    data = StreamingDataset(
        remote="s3://bucket/mds", local=str(scratch / "mds"), shuffle=True, batch_size=BATCH
    )
    for batch in DataLoader(data, batch_size=BATCH):
        yield batch["row"].numpy()


def litdata_epoch(rows: int, scratch: pathlib.Path) -> Epoch:
    import litdata
    from litdata.streaming import async_prefetch, downloader

    # With obstore it refuses addresses without TLS, so it uses boto3.
    for module in (async_prefetch, downloader):
        module.obstore_usable = lambda: False
    downloader._OBSTORE_AVAILABLE = False
    data = litdata.StreamingDataset(
        "s3://bucket/litdata", cache_dir=str(scratch / "lit"), shuffle=True
    )
    for batch in litdata.StreamingDataLoader(data, batch_size=BATCH):
        yield batch.numpy()


def obstore_epoch(rows: int, scratch: pathlib.Path) -> Epoch:
    import obstore
    import obstore.store

    store = obstore.store.S3Store(
        "bucket",
        endpoint=os.environ["AWS_ENDPOINT_URL"],
        region="us-east-1",
        client_options={"allow_http": True},
    )
    size = WIDTH * 4
    for picks in exact_order(rows):
        starts = [header_bytes() + int(i) * size for i in picks]
        got = obstore.get_ranges(store, "rows.npy", starts=starts, lengths=[size] * len(starts))
        yield np.stack([np.frombuffer(one, np.float32) for one in got])


def s3fs_epoch(rows: int, scratch: pathlib.Path) -> Epoch:
    import s3fs

    fs = s3fs.S3FileSystem(endpoint_url=os.environ["AWS_ENDPOINT_URL"])
    size = WIDTH * 4
    for picks in exact_order(rows):
        starts = [header_bytes() + int(i) * size for i in picks]
        got = fs.cat_ranges(
            ["bucket/rows.npy"] * len(starts), starts, [one + size for one in starts]
        )
        yield np.stack([np.frombuffer(one, np.float32) for one in got])


def smart_open_epoch(rows: int, scratch: pathlib.Path) -> Epoch:
    import boto3
    import smart_open

    client = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"])
    options = {"client": client, "buffer_size": WIDTH * 4}
    with smart_open.open("s3://bucket/rows.npy", "rb", transport_params=options) as file:
        for picks in exact_order(rows):
            batch = []
            for i in picks:
                file.seek(header_bytes() + int(i) * WIDTH * 4)
                batch.append(np.frombuffer(file.read(WIDTH * 4), np.float32))
            yield np.stack(batch)


WAYS: dict[str, Callable[[int, pathlib.Path], Epoch]] = {
    "evenkeel (blocks)": evenkeel_epoch("blocks"),
    "evenkeel (exact)": evenkeel_epoch(True),
    "mosaicml-streaming": streaming_epoch,
    "litdata": litdata_epoch,
    "obstore": obstore_epoch,
    "s3fs": s3fs_epoch,
    "smart_open": smart_open_epoch,
}
# Only this fraction (1/n) of the epoch is read, because all of it would take minutes.
SLOW = {"evenkeel (exact)": 4, "obstore": 4, "s3fs": 16, "smart_open": 64}
# Imported before the clock starts.
MODULES = {
    "evenkeel (blocks)": ["evenkeel"],
    "evenkeel (exact)": ["evenkeel"],
    "mosaicml-streaming": ["streaming", "boto3"],
    "litdata": ["litdata", "boto3"],
    "obstore": ["obstore.store"],
    "s3fs": ["s3fs"],
    "smart_open": ["smart_open", "boto3"],
}


def anonymous() -> int:
    text = pathlib.Path("/proc/self/status").read_text()
    return int(text.split("RssAnon:")[1].split()[0]) << 10


def run_one(name: str, rows: int, scratch: pathlib.Path) -> None:
    import torch  # noqa: F401  # not counted as memory of a contestant

    for module in MODULES[name]:
        importlib.import_module(module)
    before = anonymous()
    most, total, count = 0, 0.0, 0
    asked = rows // SLOW.get(name, 1)
    began = time.perf_counter()
    for batch in WAYS[name](rows, scratch):
        total += float(batch.sum(dtype=np.float64))
        count += len(batch)
        most = max(most, anonymous() - before)
        if count >= asked and name in SLOW:
            break
    seconds = time.perf_counter() - began
    copies = sum(p.stat().st_size for p in scratch.rglob("*") if p.is_file())
    print(json.dumps([count / seconds, count, total, most + copies]))
    sys.stdout.flush()
    os._exit(0)  # some leave threads behind


def prepare(root: pathlib.Path, rows: int) -> list[str]:
    """Writes the data in every format, and returns what is missing."""
    data = contents(rows)
    np.save(root / "rows.npy", data)
    missing = []
    try:
        from streaming import MDSWriter

        columns = {"row": f"ndarray:float32:{WIDTH}"}
        with MDSWriter(out=str(root / "mds"), columns=columns, size_limit=SHARD) as writer:
            for row in data:
                writer.write({"row": row})
    except ImportError as error:
        missing.append(f"mosaicml-streaming ({error})")
    try:
        import torch
        from litdata.streaming.writer import BinaryWriter

        (root / "litdata").mkdir()
        chunks = BinaryWriter(str(root / "litdata"), chunk_bytes=SHARD)
        for i, row in enumerate(data):
            chunks[i] = torch.from_numpy(row)
        chunks.done()
        chunks.merge()
    except ImportError as error:
        missing.append(f"litdata ({error})")
    return missing


def compare(args: argparse.Namespace, at: pathlib.Path) -> None:
    rows = (args.mib << 20) // (WIDTH * 4)
    at.chmod(0o755)  # nginx may run as another user
    (at / "data/bucket").mkdir(parents=True)
    for one in prepare(at / "data/bucket", rows):
        print(f"left out: {one}")
    wanted = float(contents(rows).sum(dtype=np.float64))
    environment = {
        **os.environ,
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_ALLOW_HTTP": "true",  # for obstore, which litdata uses
    }
    results: dict[str, list[list[float]]] = {}
    names = [one for one in WAYS if not args.only or one in args.only.split(",")]
    with nginx(at, "127.0.0.1", []):
        for repeat in range(args.repeats):
            for name in names:
                scratch = at / f"scratch-{repeat}-{name}"
                scratch.mkdir()
                with Relay(("127.0.0.1", PORT), args.latency) as relay:
                    environment["AWS_ENDPOINT_URL"] = f"http://127.0.0.1:{relay.port}"
                    try:
                        got = subprocess.run(
                            [sys.executable, __file__, "--one", name, str(rows), str(scratch)],
                            env=environment,
                            capture_output=True,
                            text=True,
                            timeout=300,
                        )
                        lines = [one for one in got.stderr.splitlines() if "rror" in one]
                        said = lines[-1] if lines else "it failed without a message"
                    except subprocess.TimeoutExpired:
                        got, said = None, "more than 300 s"
                    sent = relay.bytes
                shutil.rmtree(scratch)
                if got is None or got.returncode != 0:
                    print(f"{name}: {said[-300:]}", flush=True)
                    names = [one for one in names if one != name]
                    continue
                speed, count, total, memory = json.loads(got.stdout.splitlines()[-1])
                if count >= rows and abs(total - wanted) > 1e-6 * abs(wanted):
                    print(f"{name}: the rows are not those of the file ({count} of {rows})")
                results.setdefault(name, []).append([speed, sent / count / (WIDTH * 4), memory])
                print(f"{name}: {speed:,.0f} samples/s", file=sys.stderr, flush=True)
    print("| contestant | samples/s | bytes fetched for each byte used | memory, MiB |")
    print("|---|--:|--:|--:|")
    for name, each in results.items():
        speeds = [one[0] for one in each]
        print(
            f"| {name} | {statistics.median(speeds):,.0f} ({min(speeds):,.0f} to"
            f" {max(speeds):,.0f}) | {each[-1][1]:.2f} | {max(o[2] for o in each) / 2**20:,.0f} |"
        )


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        return run_one(sys.argv[2], int(sys.argv[3]), pathlib.Path(sys.argv[4]))
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--mib", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--latency", type=float, default=0, metavar="MS")
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        compare(args, pathlib.Path(folder))


if __name__ == "__main__":
    main()
