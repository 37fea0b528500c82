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
