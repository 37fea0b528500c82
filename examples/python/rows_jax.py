"""A regression in JAX on rows that need not fit into memory.

    python rows_jax.py                      100,000 rows, with a budget of 16 MiB
    python rows_jax.py --epochs 5

Batches are NumPy arrays in memory that the loader lends. `jax.dlpack.from_dlpack` uses them without
a copy if JAX computes on the CPU; for a GPU, `jax.device_put` copies them there. In both cases the
memory returns to the loader when JAX releases it.
"""

import sys

import evenkeel
import jax
import jax.numpy as jnp
from rows_data import COLUMNS, line, opened


def to_jax(batch):
    if jax.default_backend() == "cpu":
        return tuple(jax.dlpack.from_dlpack(field) for field in batch)
    return tuple(jax.device_put(field) for field in batch)


def loss(weights, x, y):
    return jnp.mean((x @ weights - y) ** 2)


@jax.jit
def step(weights, x, y):
    value, gradient = jax.value_and_grad(loss)(weights, x, y)
    return weights - 0.1 * gradient, value


def train(x, y, epochs):
    weights = jnp.zeros(COLUMNS)
    # Batches of one size, so that JAX compiles the step once.
    options = {"order": "blocks", "seed": 1, "drop_last": True, "transform": to_jax}
    with evenkeel.Loader((x, y), batch_size=500, **options) as loader:
        for epoch in range(epochs):
            losses = []
            for features, targets in loader:  # one epoch; the next loop is the next epoch
                weights, value = step(weights, features, targets)
                losses.append(float(value))
            print(f"epoch {epoch}  loss {losses[0]:.4f} to {losses[-1]:.4f}")
    return losses[-1]


def main():
    with opened(__doc__, line) as (arrays, options):
        return 0 if train(arrays["x"], arrays["y"], options.epochs) < 0.05 else 1


if __name__ == "__main__":
    sys.exit(main())
