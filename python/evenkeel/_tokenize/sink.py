"""Implements evenkeel.ray.TokenSink: writes rows of Ray's blocks to parts, and joins parts into one
file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from evenkeel._files import PathLike
from evenkeel._manifest import remove_scratch
from evenkeel._tokenize.documents import column_pieces
from evenkeel._tokenize.encoders import imported
from evenkeel._tokenize.job import Job, make_job
from evenkeel._tokenize.manifest import merge, part_job, require_fit, scratch_folder
from evenkeel._tokenize.run import COUNTS
from evenkeel._tokenize.worker import Work
from evenkeel._write_tokens import TokenWriter

_LONGEST = 64 << 20  # bytes of a text

_DEFAULTS: dict[str, Any] = {
    "format": None,
    "dtype": None,
    "eot": "auto",
    "separator": None,
    "input_format": None,
    "invalid": "error",
    "special": "text",
    "val_share": 0.0,
    "val_output": None,
    "seed": 0,
    "checksums": False,
}


def make_sink(
    data: Any,
    ray: Callable[[str], Any],
    output: PathLike,
    tokenizer: Any,
    column: str,
    scratch: PathLike | None,
    options: dict[str, Any],
) -> Any:
    unknown = set(options) - set(_DEFAULTS)
    if unknown:
        raise TypeError(f"ray: TokenSink has no option {', '.join(sorted(unknown))}")
    given = {**_DEFAULTS, **options}
    of_tokens = tokenizer is None
    if of_tokens and (given["dtype"] is None or given["eot"] == "auto"):
        raise ValueError(
            "ray: TokenSink without a tokenizer takes lists of tokens\nhint: pass their dtype and"
            " eot (None for none), or a tokenizer"
        )
    if of_tokens and given["val_share"]:
        raise ValueError("ray: TokenSink chooses documents for validation by their text")
    if of_tokens:  # the smallest dtype of all tokens is not known
        dtype, given["dtype"] = np.dtype(given["dtype"]).name, "int64"
        if np.dtype(dtype).kind not in "iu":
            raise ValueError(f"ray: tokens are whole numbers; TokenSink got the dtype {dtype}")
    job, _ = make_job(
        None, output, tokenizer="bytes" if of_tokens else tokenizer, text_key=column, **given
    )
    if of_tokens:
        job = job.with_dtype(dtype)
        require_fit(np.array([] if job.eot is None else [job.eot], np.int64), dtype)
    folder = scratch_folder(job, scratch)

    class EvenkeelSink(data.Datasink):  # type: ignore[misc]
        def on_write_start(self, *args: Any, **more: Any) -> None:
            os.makedirs(folder, exist_ok=True)

        def write(self, blocks: Iterable[Any], ctx: Any) -> Any:
            accessor = ray("ray.data.block").BlockAccessor
            tables = (accessor.for_block(block).to_arrow() for block in blocks)
            made = _part_of(job, folder, ctx.task_idx)
            return ctx.task_idx, _write(made, tables, column, job.dtype if of_tokens else None)

        def on_write_complete(self, result: Any, *args: Any, **more: Any) -> None:
            done = dict(getattr(result, "write_returns", result))
            parts = [_part_of(job, folder, i) for i in sorted(done)]
            merge(job, parts, [done[i] for i in sorted(done)], "64MiB")
            remove_scratch(job.outputs[0], folder)

        def on_write_failed(self, error: Exception) -> None:
            remove_scratch(job.outputs[0], folder)

        def get_name(self) -> str:
            return "Evenkeel"

    return EvenkeelSink()


def _part_of(job: Job, folder: str, part: int) -> Job:
    names = ("train", "val")[: len(job.outputs)]
    paths = [os.path.join(folder, f"{part:06d}.{name}.ds") for name in names]
    return part_job(job, paths, str(part))


def _write(job: Job, tables: Iterable[Any], column: str, token_dtype: str | None) -> dict[str, int]:
    """`token_dtype`: the dtype of the output, if `column` has lists of tokens."""
    counts = dict.fromkeys(COUNTS.values(), 0)
    work = Work(job, _LONGEST) if token_dtype is None else None
    dtype = np.dtype(job.dtype)
    writers = [TokenWriter(path, "datatrove", dtype, budget="16MiB") for path in job.outputs]
    try:
        row = 0
        for table in tables:
            if table.num_rows == 0:
                continue  # Ray's empty blocks have no columns
            if column not in table.column_names:
                names = ", ".join(map(repr, table.column_names[:8])) or "none"
                raise ValueError(
                    f"ray: TokenSink finds no column {column!r}\nhint: column=; the dataset has"
                    f" {names}"
                )
            for chunk in table[column].chunks:
                if work is None:
                    _write_lists(writers[0], chunk, counts, token_dtype or job.dtype, job.dtype)
                    continue
                for message in column_pieces(chunk, "block of Ray", row, _LONGEST):
                    tokens, more = work(message)
                    for writer, (data, lengths) in zip(writers, tokens):
                        writer.append_documents(
                            np.frombuffer(data, dtype), np.frombuffer(lengths, np.int64)
                        )
                    for key, name in COUNTS.items():
                        counts[name] += more[key]
                row += len(chunk)
        for writer in writers:
            writer.close()
    finally:
        for writer in writers:
            writer._drop()
    return counts


def _write_lists(writer: TokenWriter, column: Any, counts: dict[str, int], *dtypes: str) -> None:
    arrow = imported("pyarrow", "pyarrow")
    for tokens in column:
        array = np.asarray(
            tokens.values if isinstance(tokens, arrow.ListScalar) else tokens.as_py()
        )
        if len(array) == 0:
            counts["empty_documents"] += 1
            continue
        if array.dtype.kind not in "iu":
            raise ValueError(f"ray: tokens are whole numbers; TokenSink was given {array.dtype}")
        for dtype in dtypes:
            require_fit(array, dtype)
        writer.append(array)
        writer.end_document()
        counts["documents"] += 1
