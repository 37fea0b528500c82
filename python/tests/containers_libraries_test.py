"""dask, xarray, Grain and Ray Data over arrays of evenkeel."""

import pathlib
import pickle

import numpy as np
import pytest

import evenkeel

WANT = np.random.default_rng(0).random((500, 6)).astype("float32")


@pytest.fixture
def path(tmp_path):
    np.save(tmp_path / "x.npy", WANT)
    return str(tmp_path / "x.npy")


def test_dask_tokens(path, tmp_path):
    da = pytest.importorskip("dask.array")
    tokenize = pytest.importorskip("dask.base").tokenize
    a, b = evenkeel.open(path), evenkeel.open(path, budget="4MiB")
    assert tokenize(a) == tokenize(b)  # the same rows, whatever the budget
    np.save(tmp_path / "y.npy", WANT)
    assert tokenize(a) != tokenize(evenkeel.open(tmp_path / "y.npy"))
    np.savez(tmp_path / "z.npz", p=WANT, q=WANT)
    p, q = (evenkeel.open(tmp_path / "z.npz", name=name) for name in "pq")
    assert tokenize(p) != tokenize(q)
    assert np.allclose(da.from_array(a).mean(axis=0).compute(), WANT.mean(axis=0))
    assert da.from_array(a).name == da.from_array(b).name


def test_xarray_backend(path, tmp_path):
    xr = pytest.importorskip("xarray")
    zarr = pytest.importorskip("zarr")
    data = xr.open_dataset(path, engine="evenkeel")
    assert data["data"].dims == ("data_0", "data_1")
    assert np.array_equal(data["data"].values, WANT)
    assert np.array_equal(data["data"].isel(data_0=[4, 2]).values, WANT[[4, 2]])
    assert np.array_equal(data["data"][10:20:3, 2].values, WANT[10:20:3, 2])
    made = zarr.create_array(
        tmp_path / "g.zarr",
        name="t",
        shape=WANT.shape,
        chunks=(100, 6),
        dtype="float32",
        compressors=None,
        dimension_names=("time", "place"),
    )
    made[:] = WANT
    data = xr.open_dataset(tmp_path / "g.zarr", engine="evenkeel", budget="8MiB")
    assert data["t"].dims == ("time", "place")
    assert np.allclose(data["t"].mean("time").values, WANT.mean(axis=0))
    np.savez(tmp_path / "z.npz", p=WANT, q=WANT[:3])
    assert set(xr.open_dataset(tmp_path / "z.npz", engine="evenkeel")) == {"p", "q"}
    one = xr.open_dataset(tmp_path / "z.npz", engine="evenkeel", drop_variables="q")
    assert set(one) == {"p"}


def test_xarray_of_an_array_and_of_one_that_cannot_be_read(tmp_path):
    xr = pytest.importorskip("xarray")
    zarr = pytest.importorskip("zarr")
    how = {"shape": WANT.shape, "chunks": (100, 6), "dtype": "float32", "compressors": None}
    made = zarr.create_array(tmp_path / "a.zarr", dimension_names=("time", "place"), **how)
    made[:] = WANT
    data = xr.open_dataset(tmp_path / "a.zarr", engine="evenkeel")
    assert data["data"].dims == ("time", "place")
    assert np.array_equal(data["data"].values, WANT)
    zarr.create_array(tmp_path / "g.zarr", name="good", **how)[:] = WANT
    short = zarr.create_array(tmp_path / "g.zarr", name="short", **how)
    short[:] = WANT
    chunk = tmp_path / "g.zarr" / "short" / "c" / "0" / "0"
    chunk.write_bytes(chunk.read_bytes()[:-1])
    assert set(xr.open_dataset(tmp_path / "g.zarr", engine="evenkeel")) == {"good"}
    with pytest.raises(ValueError, match="the file has"):
        xr.open_dataset(tmp_path / "g.zarr", engine="evenkeel", name="short")


def test_xarray_keeps_the_order_of_axes(tmp_path):
    xr = pytest.importorskip("xarray")
    cube = np.arange(5 * 4 * 3).reshape(5, 4, 3)
    np.save(tmp_path / "x.npy", cube)
    data = xr.open_dataset(tmp_path / "x.npy", engine="evenkeel", budget="8MiB")["data"]
    want = xr.DataArray(cube, dims=data.dims)
    for key in ([1, slice(0, 2), [2, 0]], [-1, slice(1, 4), [0]], [[3, 0], slice(0, 2), -2]):
        key = dict(zip(data.dims, key))
        assert np.array_equal(data.isel(key).values, want.isel(key).values)
    assert data.isel(dict(zip(data.dims, (4, -1, 0)))).values == cube[4, -1, 0]


def test_xarray_in_dask_chunks(path):
    xr = pytest.importorskip("xarray")
    pytest.importorskip("dask")
    data = xr.open_dataset(path, engine="evenkeel", chunks={"data_0": 100})
    assert np.allclose(data["data"].mean("data_0").compute().values, WANT.mean(axis=0))


def test_grain_source(path):
    grain = pytest.importorskip("grain", exc_type=ImportError)
    a = evenkeel.open(path)
    source = pickle.loads(pickle.dumps(a))
    data = grain.MapDataset.source(source).shuffle(seed=1).batch(50)
    rows = np.concatenate([batch for batch in data])
    assert np.array_equal(np.sort(rows, axis=0), np.sort(WANT, axis=0))


def test_ray_tasks(path):
    """The tasks that Ray would run, run here: a cluster takes too long to start for a test."""
    pytest.importorskip("ray.data", exc_type=ImportError)
    from evenkeel import ray

    source = ray._source(path, "4MiB", {})
    assert source.estimate_inmemory_data_size() == WANT.nbytes
    tasks = source.get_read_tasks(4)
    blocks = [block for task in tasks for block in pickle.loads(pickle.dumps(task.read_fn))()]
    assert sum(task.metadata.num_rows for task in tasks) == len(WANT)
    got = np.concatenate([np.stack(list(block["data"].to_numpy(False))) for block in blocks])
    assert np.array_equal(got.reshape(WANT.shape), WANT)


@pytest.mark.parametrize(
    ("example", "package"),
    [
        ("datasets_rows", "datasets"),
        ("xarray_mean", "xarray"),
        ("dask_mean", "dask"),
        ("grain_rows", "grain"),
        ("ray_rows", "ray.data"),
    ],
)
def test_examples(example, package, tmp_path, monkeypatch, capsys):
    """The examples of ten lines."""
    import runpy

    pytest.importorskip(package, exc_type=ImportError)
    examples = pathlib.Path(__file__).parents[2] / "examples" / "python"
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(examples / f"{example}.py"), run_name="__main__")
    printed = capsys.readouterr().out
    assert {"dask_mean": "mean", "xarray_mean": "mean", "grain_rows": "10000"}.get(
        example, "rows"
    ) in printed
