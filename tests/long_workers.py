"""Many epochs of torch's DataLoader, which forks its workers for each epoch.

The exit code is 1 if a batch differs from that of a loader without workers, if descriptors, threads
or children are left, or if this process grows by 8 MiB after a fifth of the epochs. The memory of
all processes is measured from outside: `evenkeel profile --fail-slope` (scripts/test_long).
"""

import argparse
import gc
import os
import sys
import tempfile
import time
from pathlib import Path

import evenkeel
import numpy as np
import torch
from torch.utils.data import DataLoader

STEPS = 40
MOST_GROWTH = 8 << 20


def entries(folder):
    return len(os.listdir(folder))


def children():
    count = 0
    for task in os.listdir("/proc/self/task"):
        try:
            text = Path(f"/proc/self/task/{task}/children").read_text()
        except OSError:  # a thread that has just ended
            continue
        count += len(text.split())
    return count


def own_memory():
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise OSError("no RssAnon in /proc/self/status")


def held():
    return {
        "descriptors": entries("/proc/self/fd"),
        "threads": entries("/proc/self/task"),
        "children": children(),
    }


def settled(most):
    """What is held, once what is on its way out has gone."""
    for _ in range(500):
        gc.collect()
        now = held()
        if all(now[name] <= most[name] for name in now):
            break
        time.sleep(0.01)
    return now


def run(folder, epochs, workers):
    path = folder / "train.bin"
    (np.arange(1_000_000) % 65536).astype(np.uint16).tofile(path)
    tokens = evenkeel.tokens(path, budget="4MiB")
    blocks = evenkeel.TokenDataset(evenkeel.tokens(path, budget="4MiB", engine="direct"), 64)
    plain = evenkeel.TokenLoader(tokens, 4, 64, seed=1, device="cpu")
    batches = evenkeel.TokenIterableDataset(tokens, 4, 64, seed=1, steps=STEPS)
    first, before = None, 0
    for epoch in range(epochs):
        batches.set_epoch(epoch)
        count = 0
        for x, y in DataLoader(batches, batch_size=None, num_workers=workers):
            right = next(plain)  # read by the parent while the workers read
            assert torch.equal(x, right[0]) and torch.equal(y, right[1]), f"epoch {epoch}"
            count += 1
        assert count == STEPS, count
        # A sampler of torch's own; left in the middle, with reads under way.
        for x, y in DataLoader(blocks, batch_size=16, shuffle=True, num_workers=workers):
            assert torch.equal((x + 1) % 65536, y)
            count += 1
            if count == STEPS + 5:
                break
        if epoch == 1:  # torch starts what it keeps in the first
            first = settled(held())
        elif epoch > 1:
            now = settled(first)
            if any(now[name] > first[name] for name in now):
                print(f"epoch {epoch}: {now}; after the first: {first}", file=sys.stderr)
                return 1
        if epoch == max(1, epochs // 5):
            before = own_memory()
    growth = own_memory() - before
    if growth > MOST_GROWTH:
        print(f"grew by {growth:,} bytes in {epochs - epochs // 5} epochs", file=sys.stderr)
        return 1
    print(f"{epochs} epochs of {workers} workers, each batch right; {first}, as after the first")
    print(f"this process: {growth:+,} bytes since epoch {max(1, epochs // 5)}")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/var/tmp")) as folder:
        return run(Path(folder), options.epochs, options.workers)


if __name__ == "__main__":
    sys.exit(main())
