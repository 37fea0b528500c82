"""What batches say about documents."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from evenkeel import _core


class TokenBatch(tuple[Any, Any]):
    """A batch (x, y) that also says where documents begin. `x, y = batch` works as without.

    Fields are of the kind of x: ndarrays, or tensors on its device. Documents are what the rows
    show of them: a document that is cut by the beginning of a row counts from there.
    """

    _documents: Any
    _counts: tuple[int, int]
    _layout: DocumentsLayout

    @property
    def x(self) -> Any:
        return self[0]

    @property
    def y(self) -> Any:
        return self[1]

    @property
    def position_ids(self) -> Any:
        """int32, of the shape of x: from 0 on in each document."""
        return self._layout.grid(self._documents, 0, "int32")

    @property
    def document_ids(self) -> Any:
        """int32, of the shape of x: the batch's documents, counted as cu_seqlens does; -1 for
        padding."""
        return self._layout.grid(self._documents, 1, "int32")

    @property
    def cu_seqlens(self) -> Any:
        """int32: where documents begin in the flattened batch, and its end, as varlen attention
        takes it. Padding at the end of a row counts as a document."""
        first = self._layout.offsets[2]
        size = 4 * (self._counts[0] + 1)
        return _view(self._documents[first : first + size], "int32")

    @property
    def max_seqlen(self) -> int:
        """The longest of them."""
        return self._counts[1]

    @property
    def loss_mask(self) -> Any:
        """bool, of the shape of x: where y counts."""
        return self._layout.grid(self._documents, 3, "bool")

    def __reduce__(self) -> Any:
        return _again, (self[0], self[1], self._documents, self._counts, self._layout)


def _again(
    x: Any, y: Any, documents: Any, counts: tuple[int, int], layout: DocumentsLayout
) -> TokenBatch:
    batch = TokenBatch((x, y))
    batch._documents, batch._counts, batch._layout = documents, counts, layout
    return batch


def _view(data: Any, dtype: str) -> Any:
    if isinstance(data, np.ndarray):
        return data.view(dtype)
    import torch

    return data.view(getattr(torch, dtype))


class DocumentsLayout:
    """Where the fields lie in the memory of a batch."""

    def __init__(self, rows: int, columns: int, most_documents: int) -> None:
        *self.offsets, self.bytes = _core.documents_layout(rows, columns, most_documents)
        self._shape = (rows, columns)

    def grid(self, data: Any, field: int, dtype: str) -> Any:
        rows, columns = self._shape
        first = self.offsets[field]
        size = rows * columns * (4 if dtype == "int32" else 1)
        return _view(data[first : first + size], dtype).reshape(rows, columns)

    def batch(self, parts: tuple[Any, ...]) -> TokenBatch:
        """What a reader gives, as what the user gets."""
        x, y, documents, counts = parts
        return _again(x, y, documents, counts, self)


def document_options(
    documents: str | None,
    *,
    bos: int | None,
    eos: int | None,
    documents_index: str | os.PathLike[str] | None,
    most_documents: int | None,
    predict_first: bool,
    leftovers: str,
    window: int | str | None,  # text is for other orders
    mixed_windows: int,
    pad: int,
) -> _core.DocumentOptions:
    options = _core.DocumentOptions()
    if documents is None:
        given = {
            "bos": bos is not None,
            "eos": eos is not None,
            "documents_index": documents_index is not None,
            "most_documents": most_documents is not None,
            "predict_first": not predict_first,
            "leftovers": leftovers != "drop",
            "mixed_windows": mixed_windows != 8,
            "pad": pad != 0,
        }
        for name, is_given in given.items():
            if is_given:
                raise ValueError(
                    f"loader: {name} was given without documents\n"
                    'hint: documents="mask", "start" or "packed" says what to do with documents'
                )
        return options
    if not isinstance(documents, str):
        raise TypeError(f'loader: documents must be "mask", "start" or "packed"; got {documents!r}')
    if leftovers not in ("use", "drop"):
        raise ValueError(f'loader: leftovers must be "use" or "drop"; got {leftovers!r}')
    options.mode = documents
    options.bos, options.eos = bos, eos
    options.index = b"" if documents_index is None else os.fsencode(documents_index)
    options.predict_first = bool(predict_first)
    options.use_leftovers = leftovers == "use"
    from evenkeel._stepping import number

    top = 1 << 32
    if most_documents is not None:
        options.most_documents = number("most_documents", most_documents, 1, top)
    if isinstance(window, str):
        raise TypeError(
            f'loader: with documents="packed" window is a number of rows; got {window!r}'
        )
    options.window = number("window", 512 if window is None else window, 1, top)
    options.mixed_windows = number("mixed_windows", mixed_windows, 1, top)
    options.pad = pad
    return options
