"""examples/c/llmc_loader.c gives the losses that llm.c's own loader gives, to the last bit.

The loader here is written from what llm.c's dataloader does (llmc/dataloader.h of karpathy/llm.c,
without shuffling): a header of 256 int32, then tokens of 16 bits; shards in the order of their
names; a step of all processes is processes * B * T tokens, read with one token more and moved on
without it; what is left of a shard is passed over; after the last shard comes the first again."""

import math
import os
import pathlib
import struct
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
BUILD = pathlib.Path(os.environ.get("EVENKEEL_TOOL", ROOT / "build" / "evenkeel")).parent
PROGRAM = BUILD / "examples" / "llmc_loader"
B, T = 3, 32


def write_shard(path, tokens):
    header = np.zeros(256, dtype="<i4")
    header[:3] = (20240520, 1, len(tokens))
    path.write_bytes(header.tobytes() + np.asarray(tokens, dtype="<u2").tobytes())


@pytest.fixture(scope="module")
def shards(tmp_path_factory):
    """Of different sizes: one ends exactly with a step, one a token too early."""
    folder = tmp_path_factory.mktemp("llmc")
    random = np.random.default_rng(42)
    for number, size in enumerate([5 * 2 * B * T + 1, 3 * 2 * B * T, 7 * 2 * B * T + 55]):
        write_shard(folder / f"train_{number:06}.bin", random.integers(0, 50257, size))
    return folder / "train_*.bin"


def plain_batches(pattern, rank, processes):
    """What llm.c's loader would hand to the model, for ever."""
    size = B * T
    while True:  # an epoch
        for path in sorted(pattern.parent.glob(pattern.name)):
            with open(path, "rb") as file:
                magic, version, tokens = struct.unpack("<3i", file.read(1024)[:12])
                assert (magic, version) == (20240520, 1)
                for step in range((tokens - 1) // (processes * size)):
                    file.seek(1024 + 2 * (step * processes + rank) * size)
                    stored = np.frombuffer(file.read(2 * (size + 1)), dtype="<u2").tolist()
                    yield stored[:-1], stored[1:]


def plain_losses(pattern, steps, rank=0, processes=1, vocabulary=256):
    """A bigram that is counted as it goes; all sums are made in the order of the example."""
    pairs = [[0] * vocabulary for _ in range(vocabulary)]
    batches = plain_batches(pattern, rank, processes)
    losses = []
    for _ in range(steps):
        inputs, targets = next(batches)
        moves = [(x % vocabulary, y % vocabulary) for x, y in zip(inputs, targets, strict=True)]
        seen = {x: sum(pairs[x]) for x, _ in moves}
        loss = 0.0
        for x, y in moves:
            loss -= math.log((pairs[x][y] + 1.0) / (seen[x] + float(vocabulary)))
        for x, y in moves:
            pairs[x][y] += 1
        losses.append(loss / len(moves))
    return losses


def example_losses(pattern, steps, *ranks):
    command = [PROGRAM, pattern, B, T, steps, *ranks]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True)
    words = [line.split() for line in done.stdout.splitlines()]
    assert [int(line[1]) for line in words] == list(range(steps))
    return [float(line[3]) for line in words]


def test_each_loss_is_the_same_over_shards_and_epochs(shards):
    steps = 2 * (10 + 5 + 14) + 7  # two epochs, and into the third
    expected = plain_losses(shards, steps)
    assert example_losses(shards, steps) == expected
    # It learns: the test would not notice a wrong batch with a loss that is always the same.
    assert len(set(expected)) == steps and expected[-1] < expected[0]


@pytest.mark.parametrize("rank", [0, 1])
def test_each_process_has_the_losses_of_its_part(shards, rank):
    steps = 5 + 2 + 7 + 4  # the second shard lacks a token for its third step
    assert example_losses(shards, steps, rank, 2) == plain_losses(shards, steps, rank, 2)


def test_what_is_wrong_is_said(shards, tmp_path):
    for words, said in [
        ([tmp_path / "none_*.bin", B, T, 1], "no file matches"),
        ([shards, 1 << 20, 1 << 10, 1], "has no step of"),
        ([shards, 1 << 40, 1 << 20, 1], "has no step of"),  # more than there is memory
        ([shards, 1 << 32, 1 << 32, 1, 0, 1 << 32], "has no step of"),  # and than 64 bits hold
        ([shards, B, T, 1, 2, 2], "RANK is less than PROCESSES"),
        ([shards], "usage"),
    ]:
        done = subprocess.run([PROGRAM, *map(str, words)], capture_output=True, text=True)
        assert done.returncode in (1, 2) and said in done.stderr


if __name__ == "__main__":
    sys.exit(pytest.main([__file__]))
