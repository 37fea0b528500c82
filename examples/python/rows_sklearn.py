"""A linear classifier of scikit-learn, trained on rows that need not fit into memory.

    python rows_sklearn.py                  100,000 rows, with a budget of 16 MiB
    python rows_sklearn.py --epochs 5

`partial_fit` takes one batch at a time, and `evenkeel.Loader` reads them ahead. The data is sorted
by label, as it often is on disk: order="blocks" mixes it at the speed of a scan.
"""

import sys

import evenkeel
import numpy as np
from rows_data import CLASSES, clouds, opened
from sklearn.linear_model import SGDClassifier


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
    with opened(__doc__, clouds) as (arrays, options):
        return 0 if train(arrays["x"], arrays["y"], options.epochs) > 0.8 else 1


if __name__ == "__main__":
    sys.exit(main())
