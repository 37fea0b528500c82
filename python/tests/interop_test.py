"""Other libraries that are handed an Array: within the budget, or a clear error."""

import numpy as np
import pytest

import evenkeel


@pytest.fixture
def small(folder):
    """An array that fits its budget, and what it was made of."""
    data = np.arange(60, dtype="f4").reshape(20, 3)
    np.save("small.npy", data)
    return evenkeel.open("small.npy", budget="4MiB"), data


@pytest.fixture
def large(folder):
    """An array four times the size of its budget."""
    data = np.arange(2_000_000, dtype="i8").reshape(-1, 100)
    np.save("large.npy", data)
    return evenkeel.open("large.npy", budget="4MiB"), data


# --- torch


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@pytest.mark.parametrize("name", ["as_tensor", "tensor", "asarray", "Tensor", "from_dlpack"])
def test_torch_takes_an_array_that_fits(small, torch, name):
    array, data = small
    got = getattr(torch, name)(array)
    assert got.dtype == torch.float32 and (got.numpy() == data).all()
    got[0, 0] = -1  # the tensor has memory of its own
    assert array[0, 0] == data[0, 0]


@pytest.mark.parametrize("name", ["as_tensor", "tensor", "asarray", "Tensor", "from_dlpack"])
def test_torch_raises_the_error_of_asarray_without_reading_rows(large, torch, name, monkeypatch):
    array, _ = large
    with pytest.raises(MemoryError) as wanted:
        np.asarray(array)

    def read(*_):
        raise AssertionError("a row was read")

    monkeypatch.setattr(evenkeel.Array, "_block", read)
    monkeypatch.setattr(evenkeel.Array, "__iter__", read)
    with pytest.raises(MemoryError) as raised:
        getattr(torch, name)(array)
    assert str(raised.value) == str(wanted.value)


def test_torch_takes_every_number_it_has(folder, torch):
    for dtype in ("?", "i1", "i2", "i4", "i8", "u1", "u2", "f2", "f4", "f8", "c8", "c16"):
        data = np.arange(6).astype(dtype).reshape(2, 3)
        np.save("a.npy", data)
        got = torch.as_tensor(evenkeel.open("a.npy"))
        assert got.dtype == torch.as_tensor(data).dtype and (got.numpy() == data).all()
    np.save("a.npy", np.float32(2.5))
    assert torch.as_tensor(evenkeel.open("a.npy")).item() == 2.5


@pytest.mark.parametrize("dtype", [">f4", "M8[s]", "f4,i4"])
def test_types_that_torch_does_not_have_are_refused(folder, torch, dtype):
    np.save("a.npy", np.zeros(4, dtype))
    with pytest.raises(BufferError):
        torch.as_tensor(evenkeel.open("a.npy"))


def test_numpy_and_iteration_stay_as_they_are(small):
    array, data = small
    assert (np.asarray(array) == data).all() and (np.array(list(array)) == data).all()
    assert (np.from_dlpack(array) == data).all()


@pytest.mark.parametrize("columns", [(), (3,), (2, 2)])
def test_a_dataloader_reads_a_batch_at_once(folder, torch, columns, monkeypatch):
    data = np.arange(100 * int(np.prod(columns)), dtype="f4").reshape(100, *columns)
    np.save("a.npy", data)
    array = evenkeel.open("a.npy", budget="4MiB")
    reads = []
    block = evenkeel.Array._block
    monkeypatch.setattr(
        evenkeel.Array, "_block", lambda self, rows: reads.append(len(rows)) or block(self, rows)
    )
    order = torch.randperm(100).tolist()
    batches = list(torch.utils.data.DataLoader(array, batch_size=16, sampler=order))
    assert reads == [16] * 6 + [4]
    assert (torch.cat(batches).numpy() == data[order]).all() and batches[0].shape == (16, *columns)


def test_rows_of_a_dataloader_are_those_of_indexing(small):
    array, data = small
    rows = array.__getitems__([3, -1, 3])
    assert isinstance(rows, list) and (np.array(rows) == data[[3, -1, 3]]).all()
    with pytest.raises(IndexError):
        array.__getitems__([20])


# --- dask


@pytest.fixture
def da():
    return pytest.importorskip("dask.array")


def test_dask_takes_an_array_as_it_is(small, da):
    array, data = small
    lazy = da.from_array(array)
    assert lazy.shape == data.shape and lazy.dtype == data.dtype
    assert (lazy.compute() == data).all() and (lazy.T[1, 3:9].compute() == data.T[1, 3:9]).all()


@pytest.mark.parametrize("chunks", ["auto", "100kB", (500, 100), (700, -1), (3000, 7)])
def test_dask_reads_block_by_block(large, da, chunks):
    array, data = large
    read = []
    block = evenkeel.Array._block
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            evenkeel.Array, "_block", lambda self, rows: read.append(len(rows)) or block(self, rows)
        )
        lazy = da.from_array(array, chunks=chunks)
        assert sum(read) == 0  # the graph is made without reading
        if chunks == "auto":  # blocks of 128 MiB, dask's default: more than the budget
            with pytest.raises(MemoryError, match="budget of 4 MiB"):
                lazy.sum().compute()
            return
        assert lazy.sum().compute(scheduler="synchronous") == data.sum()
        assert max(read) <= max(lazy.chunks[0])
    assert array.budget.peak <= array.budget.limit


def test_dask_threads_read_at_once(large, da):
    array, data = large
    lazy = da.from_array(array, chunks="50kB")
    assert (
        lazy.mean(axis=0).compute(scheduler="threads", num_workers=4) == data.mean(axis=0)
    ).all()
    assert array.budget.peak <= array.budget.limit


def test_blocks_for_dask_are_whole_rows(large, da):
    array, _ = large
    assert array.chunks[1:] == (100,) and array.chunks[0] * array.dtype.itemsize * 100 <= 1 << 20
    lazy = da.from_array(array, chunks="3MiB")
    assert lazy.chunks[1] == (100,) and max(lazy.chunks[0]) % array.chunks[0] == 0


def test_dask_knows_an_array_again(small, da):
    """Its name depends on the files and what is read of them, and making it reads nothing."""
    from dask.base import tokenize

    array, _ = small
    assert tokenize(array) == tokenize(evenkeel.open("small.npy", budget="4MiB"))
    assert tokenize(array) == tokenize(evenkeel.open("small.npy", budget="8MiB"))
    assert tokenize(array) != tokenize(evenkeel.open("small.npy", dtype="uint8", offset=128))


# --- xarray


def test_xarray_within_the_budget_or_an_error(small, large):
    xr = pytest.importorskip("xarray")
    assert (xr.DataArray(small[0]).values == small[1]).all()
    with pytest.raises(MemoryError, match="budget of 4 MiB"):
        xr.DataArray(large[0])


def test_xarray_over_dask_is_lazy(large, da):
    xr = pytest.importorskip("xarray")
    array, data = large
    lazy = xr.DataArray(da.from_array(array, chunks="100kB"), dims=("row", "column"))
    assert (lazy[7].values == data[7]).all()
    assert (lazy.mean("row").compute(scheduler="synchronous").values == data.mean(axis=0)).all()
    assert array.budget.peak <= array.budget.limit
