"""Information about documents in batches."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from evenkeel import _core
from evenkeel._stepping import number, whole

MODES = '"mask", "start", "packed" or "whole"'


class TokenBatch:
    """A batch (x, y) that also says where documents begin. `x, y = batch` works as for a plain
    batch.

    The fields have the type of x: ndarrays, or tensors on its device. A document that is cut by the
    beginning of a row counts from there. With documents="whole", x, y and the fields have one axis:
    all documents of the batch in sequence, which begin at cu_seqlens.
    """

    # Not a tuple: torch's DataLoader would turn it into a list, without the fields.

    def __init__(
        self, x: Any, y: Any, documents: Any, counts: tuple[int, int, int], layout: DocumentsLayout
    ) -> None:
        self.x, self.y = x, y
        self._documents, self._counts, self._layout = documents, counts, layout

    def __iter__(self) -> Iterator[Any]:
        return iter((self.x, self.y))

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: Any) -> Any:
        return (self.x, self.y)[index]

    def __repr__(self) -> str:
        shape = tuple(self.x.shape)
        return f"<evenkeel.TokenBatch: x of shape {shape}, {self.documents} documents>"

    @property
    def documents(self) -> int:
        """The number of documents and paddings in the batch: the entries of cu_seqlens except the
        last."""
        return self._counts[0]

    @property
    def position_ids(self) -> Any:
        """int32, of the shape of x: the position in each document, from 0."""
        return self._field(0, "int32")

    @property
    def document_ids(self) -> Any:
        """int32, of the shape of x: the number of the document, in the order of cu_seqlens; -1 for
        padding."""
        return self._field(1, "int32")

    @property
    def cu_seqlens(self) -> Any:
        """int32: where documents begin in the flattened batch, and its end, in the form that varlen
        attention expects. Padding at the end of a row counts as a document."""
        first = self._layout.offsets[2]
        size = 4 * (self._counts[0] + 1)
        return _view(self._documents[first : first + size], "int32")

    @property
    def max_seqlen(self) -> int:
        """The length of the longest document."""
        return self._counts[1]

    @property
    def loss_mask(self) -> Any:
        """bool, of the shape of x: where y counts for the loss."""
        return self._field(3, "bool")

    def _field(self, number: int, dtype: str) -> Any:
        first = self._layout.offsets[number]
        size = self._counts[2] * (4 if dtype == "int32" else 1)
        return _view(self._documents[first : first + size], dtype).reshape(self.x.shape)

    def pin_memory(self) -> TokenBatch:
        """The same batch in pinned memory, for DataLoader(pin_memory=True)."""
        return self._each(lambda tensor: tensor.pin_memory())

    def to(self, *device: Any, **options: Any) -> TokenBatch:
        """The same batch on another device; the arguments are those of torch's Tensor.to. A dtype
        applies to x and y only."""
        x, y = self.x.to(*device, **options), self.y.to(*device, **options)
        how = {name: options[name] for name in ("non_blocking", "copy") if name in options}
        documents = self._documents.to(x.device, **how)
        return TokenBatch(x, y, documents, self._counts, self._layout)

    def _each(self, make: Callable[[Any], Any]) -> TokenBatch:
        documents = make(self._documents)
        return TokenBatch(make(self.x), make(self.y), documents, self._counts, self._layout)

    def __reduce__(self) -> Any:
        return TokenBatch, (self.x, self.y, self._documents, self._counts, self._layout)


def _view(data: Any, dtype: str) -> Any:
    if isinstance(data, np.ndarray):
        return data.view(dtype)
    import torch

    return data.view(getattr(torch, dtype))


class DocumentsLayout:
    """The layout of the fields in the memory of a batch."""

    def __init__(self, rows: int, columns: int, most_documents: int) -> None:
        *self.offsets, self.bytes = _core.documents_layout(rows, columns, most_documents)

    def batch(self, parts: tuple[Any, ...]) -> TokenBatch:
        """Turns the arrays of a reader into the batch for the user."""
        x, y, documents, counts = parts
        return TokenBatch(x, y, documents, counts, self)


def _token(name: str, value: Any) -> int:
    token = whole(f"loader: {name}", value)
    if not -(1 << 63) <= token < 1 << 63:
        raise ValueError(f"loader: {name} is no token: {token:,}")
    return token


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
    bucket: int | None,
    long_documents: str | None,
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
            "bucket": bucket is not None,
            "long_documents": long_documents is not None,
            "pad": pad != 0,
        }
        for name, is_given in given.items():
            if is_given:
                raise ValueError(
                    f"loader: {name} was given without documents\n"
                    f"hint: documents={MODES} selects what to do with documents"
                )
        return options
    if not isinstance(documents, str):
        raise TypeError(f"loader: documents must be {MODES}; got {documents!r}")
    if leftovers not in ("use", "drop"):
        raise ValueError(f'loader: leftovers must be "use" or "drop"; got {leftovers!r}')
    options.mode = documents
    options.bos = None if bos is None else _token("bos", bos)
    options.eos = None if eos is None else _token("eos", eos)
    options.index = b"" if documents_index is None else os.fsencode(documents_index)
    options.predict_first = bool(predict_first)
    options.use_leftovers = leftovers == "use"
    top = 1 << 32
    if most_documents is not None:
        options.most_documents = number("most_documents", most_documents, 1, top)
    if isinstance(window, str):
        what = "documents" if documents == "whole" else "rows"
        raise TypeError(
            f'loader: with documents="{documents}" window is a number of {what}; got {window!r}'
        )
    if window is not None:
        options.window = number("window", window, 1, top)
    options.mixed_windows = number("mixed_windows", mixed_windows, 1, top)
    if bucket is not None:
        options.bucket = number("bucket", bucket, 1)
    options.crop_long = _crops(documents, long_documents)
    options.pad = _token("pad", pad)
    return options


def _crops(documents: str, long_documents: str | None) -> bool:
    """Whether documents that are longer than a row are cropped."""
    if long_documents is None:
        return documents == "whole"
    if long_documents not in ("split", "crop"):
        raise ValueError(
            f'loader: long_documents must be "split" or "crop"; got {long_documents!r}'
        )
    if documents not in ("packed", "whole"):
        raise ValueError(
            f'loader: long_documents belongs to documents="packed", not to "{documents}"'
        )
    if documents == "whole" and long_documents == "split":
        raise ValueError(
            'loader: documents="whole" crops long documents to block_size tokens\n'
            'hint: raise block_size, or use documents="packed", which can split them'
        )
    return long_documents == "crop"
