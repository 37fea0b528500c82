"""Trains a small character-level GPT from a token file that need not fit in memory.

    python train_gpt.py [TEXT...]         texts to learn from; default: the licenses of Debian
    python train_gpt.py --loader memmap   like nanoGPT: from a memmap recreated for every batch
    python train_gpt.py --loader xy       the same batches, read within the budget

Only get_batch changes in the training loop, three lines of it:

    -    data = np.memmap(path, dtype=np.uint16, mode="r")
    -    x = torch.stack([torch.from_numpy(data[i : i + T].astype(np.int64)) for i in ix])
    -    y = torch.stack([torch.from_numpy(data[i + 1 : i + 1 + T].astype(np.int64)) for i in ix])
    +    x, y = train.xy(ix, T)              # train = evenkeel.tokens(path, budget="16MiB"), once

To see its memory in each phase:  evenkeel profile -- python train_gpt.py
"""

import argparse
import math
import sys
import tempfile
from itertools import islice
from pathlib import Path

import evenkeel
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

LICENSES = Path("/usr/share/common-licenses")
BATCH, T, WIDTH, HEADS, LAYERS = 12, 64, 64, 4, 2


def write_tokens(path, texts):
    """Writes every character as a token of 16 bits, like nanoGPT's files. Returns the number of
    different characters."""
    text = "".join(file.read_text(errors="replace") for file in texts)
    characters = {one: number for number, one in enumerate(sorted(set(text)))}
    np.array([characters[one] for one in text], dtype=np.uint16).tofile(path)
    return len(characters)


def texts_found():
    found = sorted(file for file in LICENSES.glob("*") if file.is_file() and not file.is_symlink())
    return found or [Path(__file__)]


class Block(nn.Module):
    """Causal self-attention, then a two-layer MLP at each position."""

    def __init__(self):
        super().__init__()
        self.before_attention, self.before_layers = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query_key_value = nn.Linear(WIDTH, 3 * WIDTH)
        self.together = nn.Linear(WIDTH, WIDTH)
        self.layers = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH)
        )

    def forward(self, x):
        batch, length, _ = x.shape
        parts = self.query_key_value(self.before_attention(x))
        query, key, value = parts.view(batch, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.together(seen.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.layers(self.before_layers(x))


class GPT(nn.Module):
    def __init__(self, characters):
        super().__init__()
        self.character, self.place = nn.Embedding(characters, WIDTH), nn.Embedding(T, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)), nn.LayerNorm(WIDTH))
        self.head = nn.Linear(WIDTH, characters, bias=False)

    def forward(self, x, y):
        places = torch.arange(x.shape[1], device=x.device)
        logits = self.head(self.blocks(self.character(x) + self.place(places)))
        return F.cross_entropy(logits.flatten(0, 1), y.flatten())


def by_memmap(path, draws):
    """Before: the memmap is recreated so that its pages leave the resident set. The page cache
    keeps them, and everything that the kernel read around them."""
    while True:
        data = np.memmap(path, dtype=np.uint16, mode="r")
        ix = torch.randint(len(data) - T, (BATCH,), generator=draws)
        x = torch.stack([torch.from_numpy(data[i : i + T].astype(np.int64)) for i in ix])
        y = torch.stack([torch.from_numpy(data[i + 1 : i + 1 + T].astype(np.int64)) for i in ix])
        yield x, y


def by_xy(path, draws):
    """After: the same draws, and the same batches."""
    train = evenkeel.tokens(path, budget="16MiB")
    while True:
        ix = torch.randint(len(train) - T, (BATCH,), generator=draws)
        yield train.xy(ix, T)


def by_loader(path, draws):
    """Or let a loader draw. It reads ahead, can resume, and explains where each row came from."""
    train = evenkeel.tokens(path, budget="16MiB")
    with evenkeel.TokenLoader(train, BATCH, T, seed=draws.initial_seed(), device="cpu") as loader:
        yield from loader


def train(batches, characters, steps):
    """Trains a model; returns the mean losses of the first and of the last tenth of the steps."""
    torch.manual_seed(1337)
    model = GPT(characters)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    losses = []
    for step, (x, y) in enumerate(islice(batches, steps)):
        loss = model(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step % max(1, steps // 10) == 0 or step == steps - 1:
            evenkeel.mark(f"step {step}")
            print(f"step {step:5}  loss {losses[-1]:.4f}", flush=True)
    tenth = math.ceil(steps / 10)
    return sum(losses[:tenth]) / tenth, sum(losses[-tenth:]) / tenth


def main():
    ways = {"memmap": by_memmap, "xy": by_xy, "loader": by_loader}
    options = argparse.ArgumentParser(description="Trains a small GPT on text files.")
    options.add_argument("texts", nargs="*", type=Path, metavar="TEXT")
    options.add_argument("--loader", choices=ways, default="loader")
    options.add_argument("--steps", type=int, default=200)
    args = options.parse_args()
    if args.steps < 1:
        options.error(f"--steps must be at least 1, not {args.steps}")
    torch.set_num_threads(1)  # such a small model gains nothing from more
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.bin"
        evenkeel.mark("tokens")
        characters = write_tokens(path, args.texts or texts_found())
        print(f"{path.stat().st_size // 2:,} characters, {characters} of them different")
        evenkeel.mark("training")
        batches = ways[args.loader](path, torch.Generator().manual_seed(1337))
        first, last = train(batches, characters, args.steps)
        batches.close()
    print(f"the loss went from {first:.3f} to {last:.3f}")
    return 0 if last < 0.9 * first else 1


if __name__ == "__main__":
    sys.exit(main())
