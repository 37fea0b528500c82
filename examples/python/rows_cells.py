"""Cell types from a sparse matrix of counts that need not fit into memory.

    python rows_cells.py                    20,000 cells, with a budget of 16 MiB
    python rows_cells.py --epochs 5

A sparse matrix by rows is three arrays: values, columns, and where each row begins. An .h5ad file
has them as X/data, X/indices and X/indptr; `np.save` makes files of them. Batches come as
`scipy.sparse.csr_matrix`, which scikit-learn accepts directly.
"""

import sys

import evenkeel
import numpy as np
from rows_data import CLASSES, GENES, cells, opened
from sklearn.linear_model import SGDClassifier


def train(matrix, types, epochs):
    model = SGDClassifier(loss="log_loss", random_state=0)
    # The cells are sorted by type on disk: order="blocks" mixes them at the speed of a scan.
    with evenkeel.Loader((matrix, types), batch_size=256, order="blocks", seed=1) as loader:
        for epoch in range(epochs):
            right = seen = 0
            for counts, labels in loader:  # one epoch; the next loop is the next epoch
                counts.data = np.log1p(counts.data)
                if hasattr(model, "coef_"):
                    right += int((model.predict(counts) == labels).sum())
                    seen += len(labels)
                model.partial_fit(counts, labels, classes=np.arange(CLASSES))
            print(f"epoch {epoch}  accuracy {right / seen:.3f}")
    return right / seen


def main():
    with opened(__doc__, cells, rows=20_000) as (arrays, options):
        matrix = evenkeel.csr(arrays["data"], arrays["indices"], arrays["indptr"], columns=GENES)
        return 0 if train(matrix, arrays["types"], options.epochs) > 0.8 else 1


if __name__ == "__main__":
    sys.exit(main())
