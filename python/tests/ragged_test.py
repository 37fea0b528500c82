"""Rows of different lengths and sparse matrices in a Loader."""

import pickle

import numpy as np
import pytest

import evenkeel

ROWS, COLUMNS = 300, 40


@pytest.fixture
def matrix():
    """Sparse, with empty rows; as dense rows, and as three arrays."""
    random = np.random.default_rng(1)
    dense = random.normal(size=(ROWS, COLUMNS)).astype(np.float32)
    dense[random.random((ROWS, COLUMNS)) < 0.8] = 0
    dense[::9] = 0
    rows, indices = np.nonzero(dense)
    indptr = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=ROWS))])
    arrays = {"data": dense[rows, indices], "indices": indices.astype(np.int32), "indptr": indptr}
    budget = evenkeel.Budget("16MiB")
    for name, array in arrays.items():
        np.save(f"{name}.npy", array)
    return dense, [evenkeel.open(f"{name}.npy", budget=budget) for name in arrays]


@pytest.fixture
def numbers():
    np.save("numbers.npy", np.arange(ROWS))
    return evenkeel.open("numbers.npy", budget="16MiB")


@pytest.mark.parametrize("order", ["sequential", "shuffled", "blocks"])
def test_ragged_rows_come_as_values_and_offsets(matrix, numbers, order):
    dense, (data, _, indptr) = matrix
    rows = evenkeel.ragged(data, indptr)
    assert len(rows) == ROWS and rows.dtype == np.float32
    seen = []
    for (values, offsets), labels in evenkeel.Loader((rows, numbers), 32, order=order, seed=1):
        assert offsets.dtype == np.int64 and len(offsets) == len(labels) + 1
        for i, row in enumerate(labels):
            assert (values[offsets[i] : offsets[i + 1]] == dense[row][dense[row] != 0]).all()
        seen += labels.tolist()
    assert sorted(seen) == list(range(ROWS))


def test_values_of_several_numbers_keep_their_shape():
    points = np.arange(60, dtype=np.int16).reshape(10, 3, 2)
    bounds = np.array([0, 2, 2, 5, 10])
    np.save("points.npy", points)
    np.save("bounds.npy", bounds)
    budget = evenkeel.Budget("16MiB")
    values, offsets = (evenkeel.open(f"{name}.npy", budget=budget) for name in ("points", "bounds"))
    rows = evenkeel.ragged(values, offsets)
    seen = 0
    for batch, begins in evenkeel.Loader(rows, 3, order="sequential"):
        assert batch.dtype == np.int16 and batch.shape[1:] == (3, 2)
        for begin, end in zip(begins, begins[1:]):
            assert np.array_equal(batch[begin:end], points[bounds[seen] : bounds[seen + 1]])
            assert np.array_equal(batch[begin:end], rows[seen])
            seen += 1
    assert seen == 4


def test_dense_rows_of_a_sparse_matrix(matrix, numbers):
    dense, arrays = matrix
    rows = evenkeel.csr(*arrays, columns=COLUMNS, dense=True)
    assert rows.shape == (ROWS, COLUMNS) and "dense" in repr(rows)
    for batch in evenkeel.Loader({"x": rows, "y": numbers}, 32, seed=1):
        assert (batch["x"] == dense[batch["y"]]).all()


def test_sparse_rows_are_matrices_of_scipy(matrix, numbers):
    pytest.importorskip("scipy", reason="scipy is not installed")
    dense, arrays = matrix
    seen = []
    for batch, row in evenkeel.Loader((evenkeel.csr(*arrays, columns=COLUMNS), numbers), 32):
        assert batch.shape == (len(row), COLUMNS)
        assert (batch.toarray() == dense[row]).all()
        seen += row.tolist()
    assert sorted(seen) == list(range(ROWS))


def test_sparse_rows_in_blocks_lie_in_the_memory_of_the_batch(matrix, numbers):
    pytest.importorskip("scipy", reason="scipy is not installed")
    dense, _ = matrix
    names = ("data", "indices", "indptr")
    budget = evenkeel.Budget("16MiB")
    arrays = [evenkeel.open(f"{name}.npy", budget=budget, engine="direct") for name in names]
    rows = evenkeel.csr(*arrays, columns=COLUMNS)
    options = {"order": "blocks", "block": 2, "window": 128, "seed": 1, "streams": 4}
    seen = []
    for batch, row in evenkeel.Loader((rows, numbers), 32, **options):
        assert (batch.toarray() == dense[row]).all()
        assert batch.indices.dtype == batch.indptr.dtype == np.int32
        assert not batch.data.flags.owndata and not batch.indices.flags.owndata
        seen += row.tolist()
    assert sorted(seen) == list(range(ROWS))


def test_indices_that_scipy_does_not_know_are_converted(matrix):
    pytest.importorskip("scipy", reason="scipy is not installed")
    dense, (data, _, indptr) = matrix
    np.save("short.npy", np.load("indices.npy").astype(np.uint16))
    rows = evenkeel.csr(data, evenkeel.open("short.npy"), indptr, COLUMNS)
    (batch,) = evenkeel.Loader(rows, ROWS, order="sequential")
    assert batch.indices.dtype == np.int32 and (batch.toarray() == dense).all()


def test_tensors(matrix):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    dense, (data, indices, indptr) = matrix
    full = evenkeel.csr(data, indices, indptr, COLUMNS, dense=True)
    with evenkeel.Loader(full, ROWS, order="sequential", device="cpu") as loader:
        assert torch.equal(next(loader), torch.from_numpy(dense))
    with evenkeel.Loader(evenkeel.ragged(data, indptr), 10, device="cpu") as loader:
        assert all(isinstance(part, torch.Tensor) for part in next(loader))
    with pytest.raises(ValueError, match="dense=True"):
        evenkeel.Loader(evenkeel.csr(data, indices, indptr, COLUMNS), 10, device="cpu")


def test_a_batch_of_long_rows_takes_memory_of_its_own(folder):
    lengths = np.ones(2000, int)
    lengths[1000:1064] = 5000
    np.save("values.npy", np.arange(lengths.sum()))
    np.save("offsets.npy", np.concatenate([[0], np.cumsum(lengths)]))
    budget = evenkeel.Budget("32MiB")
    arrays = [evenkeel.open(f"{name}.npy", budget=budget) for name in ("values", "offsets")]
    batches = list(evenkeel.Loader(evenkeel.ragged(*arrays), 50, order="sequential"))
    assert (np.concatenate([values for values, _ in batches]) == np.arange(lengths.sum())).all()
    tight = evenkeel.Budget("2MiB")
    arrays = [evenkeel.open(f"{name}.npy", budget=tight) for name in ("values", "offsets")]
    with pytest.raises(MemoryError, match="a batch of long rows"):
        list(evenkeel.Loader(evenkeel.ragged(*arrays), 50, order="sequential", prefetch=0))


def test_it_resumes_and_is_pickled(matrix):
    _, (data, _, indptr) = matrix
    rows = pickle.loads(pickle.dumps(evenkeel.ragged(data, indptr)))
    with evenkeel.Loader(rows, 32, seed=1) as loader:
        next(loader)
        state, expected = loader.state_dict(), next(loader)[0].tolist()
    with evenkeel.Loader(evenkeel.ragged(data, indptr), 32, seed=1) as loader:
        loader.load_state_dict(state)
        assert next(loader)[0].tolist() == expected
    with evenkeel.Loader(data, 32, seed=1) as other, pytest.raises(ValueError, match="its data is"):
        other.load_state_dict(state)


def test_wrong_input_is_refused(matrix, numbers):
    _, (data, indices, indptr) = matrix
    for make, error, words in [
        (lambda: evenkeel.ragged(np.arange(3), indptr), TypeError, "values must be an array"),
        (lambda: evenkeel.ragged(data, data), ValueError, "offsets must be whole numbers"),
        (lambda: evenkeel.csr(data, data, indptr, 3), ValueError, "indices must be whole numbers"),
        (lambda: evenkeel.csr(data, indices, indptr, 0), ValueError, "columns must be 1 or more"),
    ]:
        with pytest.raises(error, match=words):
            make()
    for name, offsets, words, row in [
        ("decrease", [0, 5, 3, 10], "row 1 is said to be values 5 to 3", 1),
        ("leave", [0, 10**6], "offsets go from 0 to 1,000,000", 0),
    ]:
        np.save(f"{name}.npy", np.array(offsets))
        rows = evenkeel.ragged(data, evenkeel.open(f"{name}.npy", budget="16MiB"))
        with pytest.raises((ValueError, OSError), match=words):
            list(evenkeel.Loader(rows, 3))
        with pytest.raises(ValueError, match=rf"{name}\.npy: the offsets of row {row} are"):
            rows[row]
    few = evenkeel.csr(data, indices, indptr, 20, dense=True)
    with pytest.raises((ValueError, OSError), match="in a matrix of 20 columns"):
        list(evenkeel.Loader(few, 32))
    with pytest.raises(ValueError, match="cannot be mixed"):
        evenkeel.Loader([(evenkeel.ragged(data, indptr), 1), (numbers, 1)], 3)


def test_rows_and_columns_are_whole_numbers(matrix):
    _, (data, indices, indptr) = matrix
    for wrong in (1.5, slice(1, 3), [1, 2]):
        with pytest.raises(TypeError, match="a row must be a whole number"):
            evenkeel.ragged(data, indptr)[wrong]
    for wrong in (float(COLUMNS), str(COLUMNS)):
        with pytest.raises(TypeError, match="columns must be a whole number"):
            evenkeel.csr(data, indices, indptr, wrong)
