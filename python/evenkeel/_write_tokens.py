"""Writes token files far larger than memory, within a budget."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenkeel import _core
from evenkeel._core import Budget
from evenkeel._files import AnyBudget, PathLike, dtype_of, name_for_reader, printable
from evenkeel._stepping import text, whole
from evenkeel._writer import Writer, in_pieces


class TokenWriter(Writer):
    """A token file that is being written, in one of the formats that `evenkeel.tokens` reads.

    - `format`: "nanogpt" (bare tokens), "llm.c" (also modded-nanogpt's), "megatron" (.bin and
      .idx), "datatrove" (.ds and .ds.index) or "npy". Default: by the name: .npy, .ds, .idx,
      otherwise nanogpt.
    - `eot`: a token that `end_document` writes: before the tokens of the document for llm.c,
      otherwise after them.
    - `budget`, `checksums`, `resume`: as for `evenkeel.create`.

    >>> import evenkeel
    >>> with evenkeel.TokenWriter("train.bin", format="nanogpt", eot=50256) as w:
    ...     w.append([15496, 995])
    ...     w.end_document()
    >>> len(evenkeel.tokens("train.bin"))
    3
    """

    def __init__(
        self,
        path: PathLike,
        format: str | None = None,
        dtype: Any = "uint16",
        *,
        eot: int | None = None,
        budget: AnyBudget = None,
        checksums: bool = False,
        resume: bool = False,
    ) -> None:
        self._path = os.fsdecode(path)
        self._dtype = dtype_of(dtype)
        self._core_writer = _core.TokenWriter(
            os.fsencode(path),
            name_for_reader(self._dtype),
            text("create: format", format or ""),
            None if eot is None else whole("create: eot", eot),
            Budget(budget),
            bool(checksums),
            bool(resume),
        )
        self._path = os.fsdecode(self._core_writer.path)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self._dtype

    @property
    def format(self) -> str:
        format: str = self._open().format
        return format

    @property
    def tokens(self) -> int:
        """The number of tokens written so far, including `eot`."""
        tokens: int = self._open().tokens
        return tokens

    @property
    def documents(self) -> int:
        """The number of documents that have ended."""
        documents: int = self._open().documents
        return documents

    def append(self, tokens: ArrayLike) -> None:
        """Appends tokens: a list or an array of integers with one axis. If one does not fit the
        dtype, that is an error and none is written."""
        array = np.asarray(tokens)
        if array.size == 0:
            return
        if array.ndim != 1 or array.dtype.kind not in "iu":
            raise ValueError(
                f"write {printable(self._path)}: tokens must be integers with one axis; got"
                f" {array.dtype} of shape {array.shape}"
            )
        writer = self._open()
        if array.dtype == self._dtype:
            for piece in in_pieces(array, self._dtype):
                writer.append(np.ascontiguousarray(piece).view(np.uint8))
            return
        if array.dtype == np.uint64 and array.max() > np.iinfo(np.int64).max:
            raise ValueError(
                f"write {printable(self._path)}: token {array.max()} does not fit {self._dtype}"
            )
        pieces = in_pieces(array, np.dtype(np.int64))
        self._require_fits(array, pieces)
        for piece in pieces:
            writer.append_values(np.ascontiguousarray(piece, np.int64))

    def _require_fits(self, array: NDArray[Any], pieces: list[NDArray[Any]]) -> None:
        """Before any token is written."""
        limits = np.iinfo(self._dtype)
        if limits.min <= int(array.min()) and int(array.max()) <= limits.max:
            return
        before = self.tokens
        for piece in pieces:
            wrong = np.flatnonzero((piece < limits.min) | (piece > limits.max))
            if wrong.size:
                raise ValueError(
                    f"write {printable(self._path)}: token {before + int(wrong[0]):,} is"
                    f" {piece[wrong[0]]}; {self._dtype} holds {limits.min} to {limits.max}\n"
                    "hint: choose a larger dtype"
                )
            before += len(piece)

    def append_documents(self, tokens: ArrayLike, lengths: ArrayLike) -> None:
        """Appends whole documents: their tokens, in the dtype of the writer, and the length of
        each.

        The same as `append` and `end_document` for each document, in one call.
        """
        array = np.asarray(tokens)
        if array.dtype != self._dtype or array.ndim != 1:
            raise TypeError(
                f"write {printable(self._path)}: whole documents must be an array of {self._dtype}"
                f" with one axis; got {array.dtype} of shape {array.shape}"
            )
        given = np.asarray(lengths)
        if given.ndim != 1 or (given.size and given.dtype.kind not in "iu"):
            raise TypeError(
                f"write {printable(self._path)}: lengths of documents must be integers with one"
                f" axis; got {given.dtype} of shape {given.shape}"
            )
        counts = np.ascontiguousarray(given, np.int64)
        if counts.size and int(counts.min()) < 0:  # before any of the documents is written
            raise ValueError(
                f"write {printable(self._path)}: the length of a document is {int(counts.min()):,}"
            )
        if int(counts.sum()) != len(array):
            raise ValueError(
                f"write {printable(self._path)}: {len(counts):,} documents have"
                f" {int(counts.sum()):,} tokens in all; got {len(array):,}"
            )
        self._open().append_documents(np.ascontiguousarray(array).view(np.uint8), counts)

    def end_document(self) -> None:
        """Makes the tokens since the last call a document. An empty document is not recorded unless
        there is an `eot`."""
        self._open().end_document()

    def __repr__(self) -> str:
        state = "closed" if self._core_writer is None else f"{self.tokens:,} tokens so far"
        return f"<evenkeel.TokenWriter {printable(os.path.basename(self._path))}: {state}>"
