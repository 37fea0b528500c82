"""Arrow tables, written by pyarrow and by Hugging Face datasets."""

import pickle

import numpy as np
import pytest

import evenkeel

pa = pytest.importorskip("pyarrow")


def rows_of(batches, dtype="float32", width=None):
    rng = np.random.default_rng(1)
    parts = [rng.integers(0, 200, (n,) if width is None else (n, width)) for n in batches]
    return [part.astype(dtype) for part in parts]


def column(part):
    if part.ndim == 1:
        return pa.array(part)
    return pa.FixedSizeListArray.from_arrays(
        column(part.reshape(-1, *part.shape[2:])), part.shape[1]
    )


def write(path, tables, stream, **options):
    new = pa.ipc.new_stream if stream else pa.ipc.new_file
    with new(str(path), tables[0].schema, options=pa.ipc.IpcWriteOptions(**options)) as out:
        for table in tables:
            out.write_batch(table)
    return str(path)


def batches_of(columns):
    """Record batches of a dict of lists of arrays."""
    count = len(next(iter(columns.values())))
    return [
        pa.record_batch({name: parts[i] for name, parts in columns.items()}) for i in range(count)
    ]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("batches", [[7], [5, 0, 3, 1], [1] * 40, [0, 4]])
@pytest.mark.parametrize("dtype", ["uint8", "float16", "float64"])
def test_numbers(tmp_path, stream, batches, dtype):
    x, y = rows_of(batches, dtype), rows_of(batches, "int32")
    tables = batches_of(
        {
            "text": [pa.array(["é" * i for i in range(n)], pa.string()) for n in batches],
            "x": [pa.array(part) for part in x],
            "y": [pa.array(part) for part in y],
        }
    )
    path = write(tmp_path / "a.arrow", tables, stream)
    want = np.concatenate(x)
    with evenkeel.open(path, column="x", budget="8MiB") as a:
        assert (a.shape, a.dtype, a.format) == (want.shape, want.dtype, "arrow")
        assert np.array_equal(a[:], want)
        order = np.random.default_rng(0).permutation(len(want))
        assert np.array_equal(a.take(order), want[order])
        assert np.array_equal(np.concatenate(list(a.batches(3))), want)
        assert np.array_equal(pickle.loads(pickle.dumps(a))[:], want)
    assert np.array_equal(evenkeel.open(path, name="y")[:], np.concatenate(y))


@pytest.mark.parametrize("engine", ["map", "remap", "advise", "read", "direct", "auto", "fill"])
def test_every_engine(tmp_path, engine):
    parts = rows_of([300, 17, 1, 900], width=33)
    path = write(tmp_path / "a.arrow", batches_of({"x": [column(p) for p in parts]}), True)
    want = np.concatenate(parts)
    with evenkeel.open(path, engine=engine, budget="4MiB") as a:
        assert a.shape == want.shape
        order = np.random.default_rng(0).permutation(len(want))
        assert np.array_equal(a.take(order), want[order])
        assert np.array_equal(a[250:400, 3:7], want[250:400, 3:7])
        seen = [rows for rows in a.batches(16, shuffle="blocks", block=2, window=600)]
        assert np.array_equal(np.sort(np.concatenate(seen), axis=0), np.sort(want, axis=0))


def test_cache_of_rows_in_batches(tmp_path):
    parts = rows_of([400] * 50, width=128)
    path = write(tmp_path / "a.arrow", batches_of({"x": [column(p) for p in parts]}), False)
    want = np.concatenate(parts)
    a = evenkeel.open(path, budget="6MiB", engine="direct", cache="3MiB")
    hot = np.random.default_rng(0).integers(0, 1000, (60, 500))
    for rows in hot:
        assert np.array_equal(a.take(rows), want[rows])
    assert a.stats()["cache_hits"] > 0


def test_nested_fixed_lists(tmp_path):
    parts = [np.arange(n * 12, dtype="int16").reshape(n, 3, 4) for n in (5, 2)]
    path = write(tmp_path / "a.arrow", batches_of({"x": [column(p) for p in parts]}), False)
    assert np.array_equal(evenkeel.open(path)[:], np.concatenate(parts))


LISTS = [[[1, 2], [], [3]], [[]], [], [[4, 5, 6, 7], [8]], [[], []]]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("large", [False, True])
def test_lists_are_ragged(tmp_path, stream, large):
    kind = (pa.large_list if large else pa.list_)(pa.int32())
    tables = batches_of({"ids": [pa.array(part, kind) for part in LISTS]})
    path = write(tmp_path / "a.arrow", tables, stream)
    rows = evenkeel.open(path, column="ids", budget="8MiB")
    want = [row for part in LISTS for row in part]
    assert len(rows) == len(want) and rows.dtype == np.int32
    assert [row.tolist() for row in rows] == want
    for order in ("sequential", "shuffled"):
        got = []
        for values, offsets in evenkeel.Loader(rows, 2, order=order):
            got += [values[a:b].tolist() for a, b in zip(offsets, offsets[1:])]
        assert (got == want) if order == "sequential" else sorted(got) == sorted(want)


def test_lists_in_blocks(tmp_path):
    rng = np.random.default_rng(0)
    want, tables = [], []
    for n in (30, 1, 200, 77):
        part = [rng.integers(0, 9, rng.integers(0, 20)).tolist() for _ in range(n)]
        want += part
        tables.append(pa.record_batch({"ids": pa.array(part, pa.list_(pa.int64()))}))
    path = write(tmp_path / "a.arrow", tables, True)
    rows = evenkeel.open(path, budget="16MiB")
    for epoch in range(2):
        got = []
        loader = evenkeel.Loader(rows, 16, order="blocks", block=1, window=128, seed=epoch)
        for values, offsets in loader:
            got += [values[a:b].tolist() for a, b in zip(offsets, offsets[1:])]
        assert sorted(got) == sorted(want) and got != want


def test_sliced_lists_and_columns(tmp_path):
    table = pa.record_batch(
        {
            "ids": pa.array([[9], [1, 2], [3], [4, 5]], pa.list_(pa.int32())),
            "x": pa.array([1.5, 2.5, 3.5, 4.5]),
        }
    )
    path = write(tmp_path / "a.arrow", [table.slice(1, 2), table.slice(3)], False)
    assert [row.tolist() for row in evenkeel.open(path, column="ids")] == [[1, 2], [3], [4, 5]]
    assert evenkeel.open(path, column="x")[:].tolist() == [2.5, 3.5, 4.5]


@pytest.mark.parametrize("version", ["V4", "V5"])
def test_numbers_after_columns_of_other_types(tmp_path, version):
    kind, zeros = pa.array([0] * 4, pa.int8()), pa.array([0] * 4)
    others = {
        "runs": pa.RunEndEncodedArray.from_arrays(pa.array([3, 4], pa.int32()), pa.array([7, 8])),
        "sparse": pa.UnionArray.from_sparse(kind, [zeros]),
        "dense": pa.UnionArray.from_dense(kind, pa.array(range(4), pa.int32()), [zeros]),
        "null": pa.nulls(4),
        "text": pa.array(["a long text in a buffer of its own"] * 4, pa.string_view()),
    }
    columns = {}
    for i, (name, other) in enumerate(others.items()):
        columns.update({name: other, f"x{i}": pa.array(np.arange(4) + 10 * i)})
    how = {"metadata_version": getattr(pa.ipc.MetadataVersion, version)}
    path = write(tmp_path / "a.arrow", [pa.record_batch(columns)], False, **how)
    for i in range(len(others)):
        assert np.array_equal(evenkeel.open(path, column=f"x{i}")[:], np.arange(4) + 10 * i)


def test_datasets_folder(tmp_path):
    datasets = pytest.importorskip("datasets")
    rng = np.random.default_rng(0)
    ids = [rng.integers(0, 50000, rng.integers(1, 30)).tolist() for _ in range(2500)]
    data = datasets.Dataset.from_dict({"input_ids": ids, "label": list(range(2500))})
    data.save_to_disk(str(tmp_path / "set"), num_shards=3)
    rows = evenkeel.open(tmp_path / "set", column="input_ids", budget="16MiB")
    assert [row.tolist() for row in rows] == ids
    labels = evenkeel.open(tmp_path / "set", column="label")
    assert np.array_equal(labels[:], np.arange(2500)) and len(labels.paths) == 3
    loader = evenkeel.Loader({"ids": rows, "label": labels}, 100, order="shuffled", seed=1)
    seen = 0
    for batch in loader:
        values, offsets = batch["ids"]
        for i, label in enumerate(batch["label"]):
            assert values[offsets[i] : offsets[i + 1]].tolist() == ids[label]
            seen += 1
    assert seen == 2500


def test_datasets_folder_of_splits(tmp_path):
    datasets = pytest.importorskip("datasets")
    data = datasets.DatasetDict({"train": datasets.Dataset.from_dict({"x": [1, 2]})})
    data.save_to_disk(str(tmp_path / "sets"))
    with pytest.raises(ValueError, match="several datasets: train(.|\n)*open one of them"):
        evenkeel.open(tmp_path / "sets", column="x")
    assert evenkeel.open(tmp_path / "sets" / "train", column="x")[:].tolist() == [1, 2]


@pytest.mark.parametrize("name", ["../other.arrow", "a/b.arrow", "..", ""])
def test_datasets_folder_stays_inside(tmp_path, name):
    import json

    state = {"_data_files": [{"filename": name}]}
    (tmp_path / "state.json").write_text(json.dumps(state))
    with pytest.raises(ValueError, match="not the name of a file beside it"):
        evenkeel.open(tmp_path, column="x")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (pa.array(["a", "b"]), "utf8"),
        (pa.array([True, False]), "booleans as bits"),
        (pa.array(["a", "b"]).dictionary_encode(), "dictionary-encoded"),
        (pa.array([1, None]), "1 of its values are null"),
        (pa.array([[1], None]), "1 of its values are null"),
        (pa.array([{"a": 1}, {"a": 2}]), "struct"),
        (pa.array([["a"], ["b"]]), "utf8"),
    ],
)
def test_what_is_refused(tmp_path, values, message):
    path = write(tmp_path / "a.arrow", [pa.record_batch({"x": values})], False)
    with pytest.raises(ValueError, match=message):
        evenkeel.open(path)


def test_compression_is_refused(tmp_path):
    table = pa.record_batch({"x": pa.array(np.zeros(1000))})
    path = write(tmp_path / "a.arrow", [table], False, compression="lz4")
    with pytest.raises(ValueError, match="compressed(.|\n)*write it again"):
        evenkeel.open(path)


def test_columns_after_views_and_structs(tmp_path):
    table = pa.record_batch(
        {
            "view": pa.array(["short", "a long text of more than twelve"], pa.string_view()),
            "pair": pa.array([{"a": 1, "b": [1]}, {"a": 2, "b": []}]),
            "none": pa.nulls(2),
            "x": pa.array([7.0, 8.0]),
        }
    )
    path = write(tmp_path / "a.arrow", [table, table], True)
    assert evenkeel.open(path, column="x")[:].tolist() == [7, 8, 7, 8]


def test_names(tmp_path):
    table = pa.record_batch({"x": pa.array([1]), "y": pa.array([2.0])})
    path = write(tmp_path / "a.arrow", [table], False)
    with pytest.raises(ValueError, match=r"which array\? it holds x \(int64\), y \(float64\)"):
        evenkeel.open(path)
    with pytest.raises(ValueError, match="there is no array .z."):
        evenkeel.open(path, column="z")
    with pytest.raises(ValueError, match="give one of them"):
        evenkeel.open(path, column="x", name="y")
    with pytest.raises(ValueError, match="name and column choose"):
        evenkeel.open(path, column="x", dtype="float32")


def test_truncated_and_damaged_files(tmp_path):
    parts = rows_of([5, 6], width=4)
    for stream in (False, True):
        tables = batches_of({"x": [column(p) for p in parts]})
        whole = open(write(tmp_path / "a.arrow", tables, stream), "rb").read()
        for cut in range(8, len(whole), 37):
            (tmp_path / "cut.arrow").write_bytes(whole[:cut])
            try:
                got = evenkeel.open(tmp_path / "cut.arrow")
            except ValueError:
                continue
            assert stream and len(got) in (0, 5, 11)  # a stream may end between messages


def test_parquet_names_the_way_out(tmp_path):
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"x": [1, 2]}), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match="Parquet(.|\n)*write_feather"):
        evenkeel.open(tmp_path / "a.parquet")
    # The line that it names works.
    import pyarrow.feather

    table = pq.read_table(tmp_path / "a.parquet")
    pyarrow.feather.write_feather(table, tmp_path / "out.arrow", compression="uncompressed")
    assert evenkeel.open(tmp_path / "out.arrow", column="x")[:].tolist() == [1, 2]
