#!/usr/bin/env python3
"""How good is the order `blocks`? The exact order, blocks at several windows, and a plain shuffle
buffer of the same memory, on data that is sorted by label: the hardest case.

For each it prints how far the labels in a batch are from an even share (chi-squared per degree of
freedom; 1 is what chance gives), how much neighbours in the order agree (correlation; 0 is what
chance gives), and the test loss of a small network, with its difference from the exact order over
several seeds and the 95 % confidence interval of that difference.

Run it with an interpreter that has evenkeel installed: .venv/bin/python bench/shuffle_quality.py
"""

import argparse
import os
import sys
import tempfile
import warnings

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(name, "1")

import evenkeel  # noqa: E402
import numpy as np  # noqa: E402

LABELS, FEATURES, HIDDEN, BLOCK = 10, 24, 48, 50
# Two-sided 95 % of Student's t for 1 to 30 degrees of freedom.
STUDENT = [
    *(12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13),
    *(2.12, 2.11, 2.10, 2.09, 2.09, 2.08, 2.07, 2.07, 2.06, 2.06, 2.06, 2.05, 2.05, 2.05, 2.04),
]


def make_data(rows, random):
    """Overlapping clouds of points, two for each label, sorted by label."""
    centres = random.normal(size=(LABELS, 2, FEATURES)) * 0.8
    labels = np.arange(rows) * LABELS // rows
    which = random.integers(0, 2, rows)
    points = centres[labels, which] + random.normal(size=(rows, FEATURES))
    return points.astype(np.float32), labels


# --- orders: arrays of row numbers, one for each epoch


def exact(file, epochs, batch, seed):
    return in_order_of(file, epochs, batch, seed, shuffle=True)


def blocks(window):
    def order(file, epochs, batch, seed):
        sizes = {"block": BLOCK, "window": window * BLOCK}
        return in_order_of(file, epochs, batch, seed, shuffle="blocks", **sizes)

    return order


def in_order_of(file, epochs, batch, seed, **order):
    loop = evenkeel.open(file, budget="64MiB").batches(batch, seed=seed, **order)
    return [np.concatenate(list(loop)) for _ in range(epochs)]


def shuffle_buffer(window):
    """As in Hugging Face datasets and WebDataset: a buffer with the rows of two windows is filled
    in order; each row that is taken at random makes room for the next. Each epoch begins
    elsewhere."""

    def order(file, epochs, batch, seed):
        rows = len(evenkeel.open(file))
        size = min(2 * window * BLOCK, rows)
        found = []
        for epoch in range(epochs):
            random = np.random.default_rng((seed, epoch))
            source = np.roll(np.arange(rows), -random.integers(rows))
            buffer, taken = source[:size].copy(), np.empty(rows, np.int64)
            places = random.integers(0, size, rows - size)
            for i, place in enumerate(places):
                taken[i] = buffer[place]
                buffer[place] = source[size + i]
            taken[rows - size :] = random.permutation(buffer)
            found.append(taken)
        return found

    return order


# --- figures


def chi_squared(labels, order, batch):
    """Per degree of freedom, over all whole batches."""
    whole = labels[order[: len(order) // batch * batch]].reshape(-1, batch)
    counts = np.stack([(whole == label).sum(axis=1) for label in range(LABELS)])
    expected = batch / LABELS
    return ((counts - expected) ** 2 / expected).sum() / (LABELS - 1) / len(whole)


def correlation(labels, order):
    return np.corrcoef(labels[order[:-1]], labels[order[1:]])[0, 1]


def train(points, labels, epochs, batch, seed, rate, decay):
    """A network of one hidden layer and plain stochastic gradient descent. Returns its weights."""
    steps, step = sum(len(order) // batch for order in epochs), 0
    random = np.random.default_rng(seed)
    first = (random.normal(size=(FEATURES, HIDDEN)) / FEATURES**0.5).astype(np.float32)
    second = (random.normal(size=(HIDDEN, LABELS)) / HIDDEN**0.5).astype(np.float32)
    for order in epochs:
        for at in range(0, len(order) // batch * batch, batch):
            rows = order[at : at + batch]
            x = points[rows]
            hidden = np.maximum(x @ first, 0)
            wrong = softmax(hidden @ second)
            wrong[np.arange(batch), labels[rows]] -= 1
            wrong *= rate * (1 - step / steps if decay else 1) / batch
            step += 1
            back = wrong @ second.T
            back[hidden <= 0] = 0
            second -= hidden.T @ wrong
            first -= x.T @ back
    return first, second


def softmax(scores):
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    return scores / scores.sum(axis=1, keepdims=True)


def test_loss(weights, points, labels):
    first, second = weights
    shares = softmax(np.maximum(points @ first, 0) @ second)
    return float(-np.log(shares[np.arange(len(labels)), labels] + 1e-12).mean())


def interval(values):
    """Mean and half of the 95 % confidence interval."""
    freedom = min(len(values) - 1, len(STUDENT))
    return np.mean(values), STUDENT[freedom - 1] * np.std(values, ddof=1) / len(values) ** 0.5


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--rate", type=float, default=0.1)
    parser.add_argument(
        "--constant", action="store_true", help="a constant rate; default: linear decay to 0"
    )
    parser.add_argument("--no-buffer", action="store_true", help="without the shuffle buffers")
    parser.add_argument("--windows", type=int, nargs="*", default=[8, 16, 32, 64, 128, 256, 512])
    options = parser.parse_args()
    decay = not options.constant
    warnings.simplefilter("ignore", evenkeel.ShuffleWarning)
    points, labels = make_data(options.rows * 6 // 5, np.random.default_rng(0))
    test = np.zeros(len(points), bool)
    test[::6] = True
    held_points, held_labels = points[test], labels[test]
    points, labels = points[~test], labels[~test]
    contestants = {"exact": exact}
    for window in options.windows:
        contestants[f"blocks, window of {window}"] = blocks(window)
    for window in [] if options.no_buffer else options.windows:
        contestants[f"buffer, memory of {window}"] = shuffle_buffer(window)

    print(
        f"{len(points):,} rows sorted by {LABELS} labels, blocks of {BLOCK} rows, batches of"
        f" {options.batch}, {options.epochs} epochs, {options.seeds} seeds, a rate that"
        f" {'decays to 0' if decay else 'is constant'}"
    )
    print("| order | chi-squared | neighbours | test loss | difference from exact (95 %) |")
    print("|---|---|---|---|---|")
    base = []
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "rows.npy")
        np.save(file, np.arange(len(points)))
        for name, order in contestants.items():
            losses, chi, alike = [], [], []
            for seed in range(options.seeds):
                epochs = order(file, options.epochs, options.batch, seed)
                assert all(len(np.unique(rows)) == len(points) for rows in epochs)
                chi.append(chi_squared(labels, epochs[0], options.batch))
                alike.append(correlation(labels, epochs[0]))
                weights = train(points, labels, epochs, options.batch, seed, options.rate, decay)
                losses.append(test_loss(weights, held_points, held_labels))
            base = base or losses
            away, half = interval(np.subtract(losses, base)) if name != "exact" else (0, 0)
            difference = "" if name == "exact" else f"{away:+.4f} ± {half:.4f}"
            print(
                f"| {name} | {np.mean(chi):.2f} | {np.mean(alike):+.3f} | {np.mean(losses):.4f} |"
                f" {difference} |",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
