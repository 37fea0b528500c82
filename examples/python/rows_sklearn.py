"""A linear classifier of scikit-learn, trained on rows that need not fit into memory.

    python rows_sklearn.py                  100,000 rows, with a budget of 16 MiB
    python rows_sklearn.py --epochs 5

`partial_fit` takes one batch at a time, and `evenkeel.Loader` reads them ahead. The data is sorted
by label, as it often is on disk: order="blocks" mixes it at the speed of a scan.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import evenkeel
import numpy as np
from sklearn.linear_model import SGDClassifier

COLUMNS, CLASSES = 64, 4


def make_data(folder, rows):
    """Four clouds of points, one after the other."""
    random = np.random.default_rng(0)
    labels = np.sort(random.integers(0, CLASSES, rows))
    centers = random.normal(size=(CLASSES, COLUMNS))
    features = centers[labels] + random.normal(scale=3, size=(rows, COLUMNS))
    np.save(folder / "x.npy", features.astype(np.float32))
    np.save(folder / "y.npy", labels)


def train(x, y, epochs):
    model = SGDClassifier(loss="log_loss", random_state=0)
    with evenkeel.Loader((x, y), batch_size=512, order="blocks", seed=1) as loader:
        for epoch in range(epochs):
            right = seen = 0
            for features, labels in loader:  # one epoch; the next loop is the next epoch
                if hasattr(model, "coef_"):
                    right += int((model.predict(features) == labels).sum())
                    seen += len(labels)
                model.partial_fit(features, labels, classes=np.arange(CLASSES))
            print(f"epoch {epoch}  accuracy {right / seen:.3f}")
    return right / seen


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--budget", default="16MiB")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_data(folder, options.rows)
        budget = evenkeel.Budget(options.budget)
        with (
            evenkeel.open(folder / "x.npy", budget=budget) as x,
            evenkeel.open(folder / "y.npy", budget=budget) as y,
        ):
            return 0 if train(x, y, options.epochs) > 0.8 else 1


if __name__ == "__main__":
    sys.exit(main())
