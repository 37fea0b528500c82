"""A small GPT on the CPU, trained from a contestant's crops."""

import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "examples/python"))
from gpt2 import GPT2, Sizes  # noqa: E402

VOCABULARY = 1024


class Training:
    """Model and optimizer, warmed up, so that torch's work in the first steps is not timed."""

    def __init__(self, work):
        torch.manual_seed(work.seed)
        torch.set_num_threads(1)
        sizes = Sizes(vocabulary=VOCABULARY, length=work.block, width=64, heads=2, layers=1)
        self._model = GPT2(sizes)
        self._optimizer = torch.optim.AdamW(self._model.parameters(), lr=1e-3)
        for _ in range(3):
            self.step(*torch.randint(VOCABULARY, (2, work.batch, work.block)))

    def step(self, x, y):
        loss = self._model(x, y)
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()


_made = {}


def ready(work):
    _made["training"] = Training(work)


def steps(batches, work):
    """Yields x of each batch after training on it. Tokens are noise; only the time matters."""
    for batch in batches:
        x, y = (torch.as_tensor(part) % VOCABULARY for part in batch)
        _made["training"].step(x, y)
        yield x
