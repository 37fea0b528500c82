"""Loader wait beside step time, in TensorBoard: is it the data or the model that takes the time?

python examples/python/tensorboard_wait.py --logdir runs/demo
tensorboard --logdir runs

Needs torch. TensorBoard is optional: without it, or without --logdir, the figures are printed.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from typing import Any

import evenkeel
import numpy as np
import torch


def make_writer(logdir: str | None) -> Any:
    """torch's SummaryWriter, or None if it is not available."""
    if logdir is None:
        return None
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        print("tensorboard is not installed (pip install tensorboard): the figures are printed")
        return None
    return SummaryWriter(logdir)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--logdir", help="where TensorBoard looks")
    parser.add_argument("--steps", type=int, default=50)
    asked = parser.parse_args()
    writer = make_writer(asked.logdir)

    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/features.npy"
        np.save(path, np.random.default_rng(0).random((20_000, 65), dtype=np.float32))
        rows = evenkeel.open(path, budget="4MiB")
        loader = evenkeel.Loader(rows, batch_size=256, seed=1, steps=asked.steps)
        model = torch.nn.Linear(64, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

        waited = 0.0
        began = time.perf_counter()
        for step, batch in enumerate(loader):
            x = torch.from_numpy(np.asarray(batch))
            loss = torch.nn.functional.mse_loss(model(x[:, :64])[:, 0], x[:, 64])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

            # How long the loop waited for this batch: a counter of the loader, which costs nothing.
            so_far = loader.stats()["batch_wait_ns"] / 1e9
            now = time.perf_counter()
            figures = {"loader wait": so_far - waited, "step": now - began}
            waited, began = so_far, now
            if writer:
                writer.add_scalars("seconds", figures, step)
                writer.add_scalar(
                    "loader/wait share", figures["loader wait"] / figures["step"], step
                )
                writer.add_scalar("loss", loss.item(), step)
            elif step % 10 == 0:
                print(
                    f"step {step:3}  loss {loss.item():.4f}  step {1e3 * figures['step']:.2f} ms, "
                    f"of which waiting for the loader {1e3 * figures['loader wait']:.2f} ms"
                )
        if writer:
            writer.close()
            print(f"written to {asked.logdir}: tensorboard --logdir {asked.logdir}")
        loader.close()


if __name__ == "__main__":
    main()
