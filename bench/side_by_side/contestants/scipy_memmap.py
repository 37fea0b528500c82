"""SciPy: a csr_matrix over np.memmap, indexed with a permutation."""

from . import _cells

TITLE = "SciPy over np.memmap"
PACKAGES = ("scipy", "numpy")


def cells(work):
    matrix = _cells.mapped(work)
    for some in work.indices():
        yield matrix[some]
