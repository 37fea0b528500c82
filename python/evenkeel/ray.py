"""Ray: arrays as a datasource (`read`), text to tokens (`tokenize`, `TokenSink`), `shuffle`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import numpy as np

import evenkeel
from evenkeel._array import Array
from evenkeel._files import PathLike, require_no_secrets

# Memory of a Ray process besides its budget: Python, NumPy, pyarrow and a tokenizer.
_PROCESS = 256 << 20
_JOIN = "64MiB"  # the budget for joining parts
_BLOCK = 32 << 20  # bytes of a block: long enough for the disk, short enough for many tasks


def read(paths: Any, *, budget: Any = "256MiB", **options: Any) -> Any:
    """A Ray dataset of the rows of an array, in a column "data", or for records in a column per
    field.

    `paths` and `options` are those of `evenkeel.open`, and Ray's tasks must be able to open them.
    Each task reads some rows, in order, within its own `budget`, which is passed to Ray as its
    memory.

    >>> evenkeel.ray.read("train.npy").map_batches(work)    # doctest: +SKIP
    """
    data = _ray("ray.data")
    source = _source(paths, budget, options)
    return data.read_datasource(
        source, ray_remote_args={"memory": evenkeel.Budget(budget).limit + 2 * _BLOCK}
    )


def _source(paths: Any, budget: Any, options: dict[str, Any]) -> Any:
    data, metadata = _ray("ray.data"), _ray("ray.data.block").BlockMetadata
    base = data.Datasource

    with evenkeel.open(paths, budget=budget, **options) as array:
        if not isinstance(array, Array) or not array.shape:
            raise TypeError(f"ray: read needs an array, not {type(array).__name__}")
        require_no_secrets([os.fsencode(path) for path in array.paths])  # tasks are pickled
        rows, row_bytes, files = len(array), array.nbytes // max(1, len(array)), array.paths

    class EvenkeelDatasource(base):  # type: ignore[misc, valid-type]
        def estimate_inmemory_data_size(self) -> int:
            return rows * row_bytes

        def get_read_tasks(self, parallelism: int, *args: Any, **more: Any) -> list[Any]:
            in_block = max(1, _BLOCK // max(1, row_bytes))
            tasks = max(1, min(parallelism, -(-rows // in_block)))
            bounds = [rows * i // tasks for i in range(tasks + 1)]
            return [
                data.ReadTask(
                    _Rows(paths, budget, options, begin, end, in_block),
                    metadata(
                        num_rows=end - begin,
                        size_bytes=(end - begin) * row_bytes,
                        input_files=tuple(files),
                        exec_stats=None,
                    ),
                )
                for begin, end in zip(bounds, bounds[1:])
            ]

    return EvenkeelDatasource()


class _Rows:
    """The work of one task."""

    def __init__(
        self, paths: Any, budget: Any, options: dict[str, Any], begin: int, end: int, step: int
    ) -> None:
        self.arguments = paths, budget, options
        self.bounds = begin, end, step

    def __call__(self) -> Iterator[Any]:
        paths, budget, options = self.arguments
        begin, end, step = self.bounds
        with evenkeel.open(paths, budget=budget, **options) as array:
            step = min(step, max(1, array.budget.limit // 4 // max(1, array[:1].nbytes)))
            for first in range(begin, end, step):
                yield _table(array[first : min(end, first + step)])


def _table(rows: np.ndarray[Any, np.dtype[Any]]) -> Any:
    names = rows.dtype.names
    columns = (
        {name: np.ascontiguousarray(rows[name]) for name in names} if names else {"data": rows}
    )
    return _ray("ray.data.block").BlockAccessor.batch_to_block(columns)


def _ray(module: str) -> Any:
    try:
        return import_module(module)
    except ImportError:
        raise ImportError("ray: Ray Data is not installed\nhint: pip install 'ray[data]'") from None


def tokenize(
    manifest: evenkeel.Manifest | PathLike,
    *,
    budget: Any = "512MiB",
    num_cpus: int = 1,
    max_retries: int = 10,
) -> dict[str, Any]:
    """Runs all parts of a manifest as Ray tasks, and joins them; see `evenkeel.plan`.

    The output is byte for byte what `evenkeel.tokenize` writes on one machine. All nodes must see
    the inputs and the manifest's scratch folder. Each task has its own `budget`, which is passed to
    Ray as its memory. A task whose process or node dies is tried again, and continues at its last
    checkpoint. With `num_cpus` above 1, a task has that many worker processes.

    >>> plan = evenkeel.plan("*.jsonl", "train.bin", "gpt2", parts=64)     # doctest: +SKIP
    >>> evenkeel.ray.tokenize(plan)                                        # doctest: +SKIP
    """
    workers = num_cpus if num_cpus > 1 else 0
    return _run(manifest, "tokenize", budget, num_cpus, workers, max_retries)


def shuffle(
    manifest: evenkeel.Manifest | PathLike,
    *,
    budget: Any = "512MiB",
    num_cpus: int = 1,
    max_retries: int = 10,
) -> dict[str, Any]:
    """Runs all parts of a manifest as Ray tasks, and joins them; see `evenkeel.plan_shuffle`.

    The output is byte for byte what `evenkeel.shuffle` writes on one machine. All nodes must see
    the inputs and the manifest's scratch folder. Each task has its own `budget`, which is passed to
    Ray as its memory. A task whose process or node dies is tried again, and continues at its last
    checkpoint. A step begins when all tasks of the previous one have ended.

    >>> plan = evenkeel.plan_shuffle("*.npy", "all.npy", parts=64)         # doctest: +SKIP
    >>> evenkeel.ray.shuffle(plan)                                         # doctest: +SKIP
    """
    return _run(manifest, "shuffle", budget, num_cpus, 0, max_retries)


def _run(
    manifest: evenkeel.Manifest | PathLike,
    work: str,
    budget: Any,
    num_cpus: int,
    workers: int,
    max_retries: int,
) -> dict[str, Any]:
    ray = _ray("ray")
    if not isinstance(manifest, evenkeel.Manifest):
        manifest = evenkeel.Manifest.load(manifest)
    if manifest.work != work:
        raise ValueError(f"ray: {work} was given a manifest of {manifest.work}")
    stored = ray.put(manifest.as_json())
    memory = evenkeel.Budget(budget).limit + _PROCESS * max(1, workers)
    part = ray.remote(_part).options(
        num_cpus=num_cpus, memory=memory, max_retries=max_retries, name=f"evenkeel.{work}"
    )
    for step in manifest.steps:
        ray.get([part.remote(stored, i, workers, budget) for i in manifest.missing_of(step)])
    joining = _PROCESS + evenkeel.Budget(_JOIN).limit
    finish = ray.remote(_finish).options(max_retries=max_retries, memory=joining)
    report: dict[str, Any] = ray.get(finish.remote(stored))
    return report


def _part(stored: dict[str, Any], part: int, workers: int, budget: Any) -> None:
    evenkeel.Manifest.of_json(stored).run(part, workers=workers, budget=budget)


def _finish(stored: dict[str, Any]) -> dict[str, Any]:
    return evenkeel.Manifest.of_json(stored).finish(budget=_JOIN)


def TokenSink(
    output: PathLike,
    tokenizer: Any = None,
    *,
    column: str = "text",
    scratch: PathLike | None = None,
    **options: Any,
) -> Any:
    """A datasink for Ray Data: writes all rows of a dataset to one token file.

    With a `tokenizer`, `column` holds texts; without, it holds lists of tokens, and `dtype` and
    `eot` must be given. Other options are those of `evenkeel.tokenize`: `format`, `val_share` and
    so on. Tasks write parts to `scratch`, which all nodes must see (default: beside the output);
    these are joined in the order of the tasks: set `preserve_order` in Ray's execution options if
    the order of rows matters.

    >>> ds = ray.data.read_parquet("corpus/")                              # doctest: +SKIP
    >>> ds.write_datasink(evenkeel.ray.TokenSink("train.bin", "gpt2"))     # doctest: +SKIP
    """
    from evenkeel._tokenize.sink import make_sink

    return make_sink(_ray("ray.data"), _ray, output, tokenizer, column, scratch, options)
