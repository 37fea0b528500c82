"""Megatron's order: the time to build its index, compared with megatron-core if it is installed.

usage: bench/megatron_index.py [--documents 10000000] [--samples 6000000] [--rounds 3]

The tokens themselves are a sparse file, which takes no space on the disk and is hardly read. Each
figure comes from its own process; the two alternate.
"""

import argparse
import importlib.util
import json
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

BLOCK = 1024


def write(prefix: str, documents: int) -> None:
    lengths = np.random.RandomState(0).lognormal(5.5, 1, documents).astype(np.int32) + 1
    lengths = np.minimum(lengths, 4096)
    ends = np.cumsum(lengths, dtype=np.int64) * 2
    with open(f"{prefix}.bin", "wb") as tokens:
        tokens.truncate(int(ends[-1]))
    with open(f"{prefix}.idx", "wb") as index:
        index.write(b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, documents, documents + 1))
        index.write(lengths.tobytes() + (ends - 2 * lengths).tobytes())
        index.write(np.arange(documents + 1, dtype=np.int64).tobytes())


def evenkeel_index(prefix: str, samples: int) -> int:
    import evenkeel

    tokens = evenkeel.tokens(prefix, budget="8GiB")
    with evenkeel.TokenLoader(
        tokens, 1, BLOCK, order="megatron", seed=1, samples=samples, prefetch=0
    ) as loader:
        return len(loader)


def megatron_index(prefix: str, samples: int) -> int:
    from megatron.core.datasets.blended_megatron_dataset_builder import (
        BlendedMegatronDatasetBuilder,
    )
    from megatron.core.datasets.gpt_dataset import GPTDataset, GPTDatasetConfig

    class Tokenizer:
        vocab_size, eod, pad, unique_identifiers = 60_000, 0, -1, {}

    config = GPTDatasetConfig(
        random_seed=1,
        sequence_length=BLOCK,
        blend=([prefix], None),
        split="1,0,0",
        tokenizer=Tokenizer(),
        reset_position_ids=False,
        reset_attention_mask=False,
        eod_mask_loss=False,
        create_attention_mask=False,
        path_to_cache=tempfile.mkdtemp(dir=Path(prefix).parent),
    )
    sizes = [samples, None, None]
    return len(BlendedMegatronDatasetBuilder(GPTDataset, sizes, lambda: True, config).build()[0])


def measured(which: str, prefix: str, samples: int) -> None:
    """Runs in its own process. Importing is not counted."""
    warnings.simplefilter("ignore")
    make = {"evenkeel": evenkeel_index, "megatron-core": megatron_index}[which]
    import_first = Path(prefix).parent / "tiny"
    make(str(import_first), 10)
    wall, cpu = time.monotonic(), time.process_time()
    count = make(prefix, samples)
    figures = {
        "samples": count,
        "seconds": time.monotonic() - wall,
        "cpu": time.process_time() - cpu,
    }
    print("figures", json.dumps(figures))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--documents", type=int, default=10_000_000)
    parser.add_argument("--samples", type=int, default=6_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        return measured(options.one[0], options.one[1], options.samples)
    kinds = ["evenkeel"]
    if importlib.util.find_spec("megatron"):
        kinds.append("megatron-core")
    found: dict[str, list[dict[str, float]]] = {kind: [] for kind in kinds}
    with tempfile.TemporaryDirectory() as folder:
        write(f"{folder}/tiny", 1000)
        write(f"{folder}/data", options.documents)
        for _ in range(options.rounds):
            for kind in kinds:
                command = [sys.executable, __file__, "--samples", str(options.samples), "--one"]
                said = subprocess.run(
                    [*command, kind, f"{folder}/data"], capture_output=True, text=True, check=True
                ).stdout
                line = next(line for line in said.splitlines() if line.startswith("figures "))
                found[kind].append(json.loads(line.removeprefix("figures ")))
    for kind, runs in found.items():
        figures = {name: statistics.median(run[name] for run in runs) for name in runs[0]}
        print(
            f"{kind}: {figures['samples']:,.0f} samples, {figures['seconds']:.2f} s,"
            f" {figures['cpu']:.2f} s of a core"
        )


if __name__ == "__main__":
    main()
