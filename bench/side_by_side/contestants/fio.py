"""fio: the speed of the disk for a program that only reads, with O_DIRECT and io_uring."""

import json
import subprocess

TITLE = "fio, the disk's limit"
PACKAGES = ()
COLUMNS = 162
CANNOT = {"workers": "a limit for reading, not for worker processes", "train": "does not train"}
SECTOR = 512


def _random(mean):
    """Options for requests at random sectors, of this mean size in bytes."""
    small = int(mean // SECTOR) * SECTOR
    percent = round((mean - small) / SECTOR * 100)
    return [
        "--rw=randread",
        "--iodepth=128",
        "--fixedbufs",
        "--registerfiles",
        "--norandommap",
        f"--blockalign={SECTOR}",
        f"--bssplit={small}/{100 - percent}:{small + SECTOR}/{percent}",
    ]


def limit(work):
    # On average, a crop or row of n bytes at a random place touches n + 512 bytes of sectors, less
    # the alignment of the places (2 bytes for crops, 8 for rows).
    jobs = {
        "crops": lambda: _random(2 * (work.block + 1) + SECTOR - 2),
        "epoch": lambda: _random(2 * (work.block + 1) + SECTOR - 2),
        "rows": lambda: _random(4 * COLUMNS + SECTOR - 8),
        "scan": lambda: ["--rw=read", "--bs=1M", "--iodepth=8"],
    }
    command = [
        "fio",
        "--name=limit",
        f"--filename={work.path}",
        "--readonly",
        "--direct=1",
        "--ioengine=io_uring",
        "--time_based",
        f"--runtime={max(1, round(work.seconds))}",
        "--output-format=json",
        *jobs[work.kind](),
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    read = json.loads(done[done.index("{") :])["jobs"][0]["read"]
    items = read["io_bytes"] / (1 << 20) if work.kind == "scan" else read["total_ios"]
    seconds = read["runtime"] / 1e3
    return {
        "items": items,
        "seconds": seconds,
        "per_s": items / seconds,
        "first_batch_s": None,
    }


def crops(work):
    """All work of this contestant is done by limit()."""


rows = scan = epoch = crops
