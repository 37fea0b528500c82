"""GPT-2 124M trained from packed documents that are not cached, compared with training without
loading.

usage: python bench/gpu_documents.py [--seconds 60] [--folder DIR] [--gib 8]

Attention stays within documents: flex_attention of torch, with a block mask made from document_ids.
Two runs alternate, with the same model: `loaded` takes batches from
evenkeel.TokenLoader(documents="packed", device=...), under a budget of 256 MiB, from a file that is
dropped from the page cache before each turn; `resident` repeats a few batches that are on the
device. The last line is JSON: tokens per second of each, and `share`, loaded divided by resident.
The goal is 0.98.

Needs torch, numpy and evenkeel. Without a GPU, this tries it:
  python bench/gpu_documents.py --device cpu --layers 1 --width 64 --batch 2 --rows 128 \\
      --gib 0.01 --seconds 2
"""

import argparse
import contextlib
import json
import os
import tempfile
import time
from typing import Any

import evenkeel
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

VOCABULARY = 50304
attention: Any = flex_attention  # compiled by itself if the whole model cannot be


def make(folder: str, gib: float) -> str:
    """Tokens of about FineWeb's lengths, with datatrove's index."""
    rng = np.random.default_rng(0)
    tokens = int(gib * 2**30) // 2
    lengths = np.clip(rng.lognormal(6.2, 1.1, tokens // 900 + 1), 20, 200_000).astype(np.int64)
    ends = np.cumsum(lengths)
    path = os.path.join(folder, "documents.ds")
    block = rng.integers(0, min(50_257, VOCABULARY), 1 << 20, dtype=np.uint16)
    with open(path, "wb") as file:
        for left in range(int(ends[-1]), 0, -len(block)):
            file.write(block[: min(left, len(block))].tobytes())
        os.fsync(file.fileno())
    ends.astype("<u8").tofile(f"{path}.index")
    return path


def drop_cached(path: str) -> None:
    for name in (path, f"{path}.index"):
        fd = os.open(name, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.middle = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor, mask: Any) -> torch.Tensor:
        rows, columns, width = x.shape
        qkv = self.qkv(self.before(x)).view(rows, columns, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        mixed = attention(q, k, v, block_mask=mask)
        x = x + self.out(mixed.transpose(1, 2).reshape(rows, columns, width))
        return x + self.down(F.gelu(self.up(self.middle(x))))


class Gpt(nn.Module):
    """GPT-2 with positions that restart in each document."""

    def __init__(self, layers: int, width: int, heads: int, columns: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, width), nn.Embedding(columns, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.last = nn.LayerNorm(width)
        self.head = nn.Linear(width, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight
        for parameter in self.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, batch: dict[str, torch.Tensor], mask: Any) -> torch.Tensor:
        x = self.tokens(batch["x"]) + self.positions(batch["position_ids"])
        for block in self.blocks:
            x = block(x, mask)
        losses = F.cross_entropy(
            self.head(self.last(x)).view(-1, VOCABULARY), batch["y"].view(-1), reduction="none"
        )
        counts = batch["loss_mask"].view(-1)
        return (losses * counts).sum() / counts.sum()


def mask_of(document_ids: torch.Tensor, create: Any = create_block_mask) -> Any:
    """Attention to earlier tokens of the same document. Padding is -1 and attends to itself."""

    def within(b: Any, _: Any, q: Any, k: Any) -> Any:
        return (q >= k) & (document_ids[b, q] == document_ids[b, k])

    rows, columns = document_ids.shape
    return create(within, rows, None, columns, columns, device=document_ids.device)


def dense_mask_of(document_ids: torch.Tensor, _: Any = None) -> torch.Tensor:
    """The same mask as a matrix for each row, for a CPU, on which flex_attention cannot train."""
    same = document_ids[:, :, None] == document_ids[:, None, :]
    return torch.tril(same)[:, None]


def dense_attention(q: Any, k: Any, v: Any, block_mask: Any) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=block_mask)


def fields_of(batch: evenkeel.TokenBatch) -> dict[str, torch.Tensor]:
    names = ("x", "y", "position_ids", "document_ids", "loss_mask")
    return {name: getattr(batch, name) for name in names}


class Trainer:
    def __init__(self, args: argparse.Namespace) -> None:
        torch.manual_seed(0)
        self.device = torch.device(args.device)
        self.cuda = self.device.type == "cuda"
        self.plain = Gpt(args.layers, args.width, args.width // 64 or 1, args.rows).to(self.device)
        self.parameters = sum(p.numel() for p in self.plain.parameters())
        self.optimizer = torch.optim.AdamW(self.plain.parameters(), lr=3e-4, fused=self.cuda)
        self.model: Any = self.plain
        self.create: Any = create_block_mask
        self.mask_of: Any = mask_of if self.cuda else dense_mask_of
        self.compiled = "nothing"

    def compile(self, batches: list[dict[str, torch.Tensor]]) -> None:
        """Compiles the model, or only its attention if torch cannot compile all of it."""
        global attention
        if not self.cuda:
            attention = dense_attention
        else:
            self.create = torch.compile(create_block_mask)
            self.model, self.compiled = torch.compile(self.plain), "model"
            try:
                self.step(batches[0])
            except Exception as error:
                print(f"the model is not compiled: {type(error).__name__}: {str(error)[:200]}")
                attention = torch.compile(flex_attention)
                self.model, self.compiled = self.plain, "attention"
                self.optimizer.zero_grad(set_to_none=True)
        for batch in batches:
            self.step(batch)

    def step(self, batch: dict[str, torch.Tensor]) -> torch.Tensor:
        low = torch.autocast("cuda", torch.bfloat16) if self.cuda else contextlib.nullcontext()
        with low:
            loss = self.model(batch, self.mask_of(batch["document_ids"], self.create))
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    def wait(self) -> None:
        if self.cuda:
            torch.cuda.synchronize()

    def run(self, batches: Any, seconds: float) -> tuple[float, float]:
        """Tokens per second, and the last loss."""
        self.step(next(batches))
        self.wait()
        began, steps = time.perf_counter(), 0
        while time.perf_counter() - began < seconds:
            for _ in range(10):  # the queue of the GPU does not run empty here
                batch = next(batches)
                loss = self.step(batch)
                steps += 1
            self.wait()
        rate = steps * batch["x"].numel() / (time.perf_counter() - began)
        return rate, float(loss)


def repeated(batches: list[dict[str, torch.Tensor]]) -> Any:
    while True:
        yield from batches


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60, help="of each of the two, in all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", help="where the data is written; default a temporary folder")
    parser.add_argument("--gib", type=float, default=8)
    parser.add_argument("--budget", default="256MiB")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--rows", type=int, default=1024, help="tokens of a row")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    trainer = Trainer(args)
    name = torch.cuda.get_device_name() if trainer.cuda else "CPU"
    print(f"{trainer.parameters / 1e6:.0f} M parameters, {args.batch} x {args.rows}, {name}")
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        path = make(folder, args.gib)
        tokens = evenkeel.tokens(path, budget=args.budget)
        options: dict[str, Any] = {"order": "shuffled", "documents": "packed", "seed": 1}
        with evenkeel.TokenLoader(
            tokens, args.batch, args.rows, device=args.device, **options
        ) as loader:
            held = [{k: v.clone() for k, v in fields_of(next(loader)).items()} for _ in range(8)]
            trainer.compile(held[:3])
            rates: dict[str, list[float]] = {"resident": [], "loaded": []}
            for number in range(args.rounds):
                for kind in sorted(rates, reverse=number % 2 == 1):
                    drop_cached(path)
                    batches = repeated(held) if kind == "resident" else map(fields_of, loader)
                    rate, loss = trainer.run(batches, args.seconds / args.rounds)
                    rates[kind].append(rate)
                    print(f"{kind:9} {rate:12,.0f} tokens/s, loss {loss:.3f}", flush=True)
            packing = loader.packing
    middle = {kind: sorted(found)[len(found) // 2] for kind, found in rates.items()}
    figures = {
        "device": name,
        "compiled": trainer.compiled,
        "resident_tokens_per_s": round(middle["resident"]),
        "loaded_tokens_per_s": round(middle["loaded"]),
        "share": round(middle["loaded"] / middle["resident"], 4),
        "padding": round(packing["padding"], 4),
        "budget_peak_bytes": tokens.budget.peak,
    }
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
