"""A small GPT on the CPU, trained from a contestant's crops."""

import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "examples/python"))
from gpt2 import GPT2, Sizes  # noqa: E402

VOCABULARY = 1024


def steps(batches, work):
    """x of each batch that was trained on. Tokens are noise: only the time counts."""
    torch.manual_seed(work.seed)
    torch.set_num_threads(1)
    model = GPT2(Sizes(vocabulary=VOCABULARY, length=work.block, width=64, heads=2, layers=1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for batch in batches:
        x, y = (torch.as_tensor(part) % VOCABULARY for part in batch)
        loss = model(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield x
