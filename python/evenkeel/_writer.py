"""What writers of arrays and of tokens share."""

from __future__ import annotations

import warnings
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenkeel._closing import Closing
from evenkeel._files import printable
from evenkeel._stepping import text

# Rows are converted this many bytes at a time.
_PIECE = 4 << 20


class Writer(Closing):
    """Shared code of writers. `_core_writer` is None after the end."""

    _core_writer: Any = None
    _path: str

    @property
    def path(self) -> str:
        return self._path

    @property
    def state(self) -> str:
        """The state of the last `checkpoint` of the writer that was killed; "" for a new file."""
        state: bytes = self._open().state
        return state.decode()

    @property
    def how(self) -> str:
        """How data is written to the disk: "O_DIRECT, 4 threads, 16 blocks of 1 MiB"."""
        how: str = self._open().how
        return how

    def checkpoint(self, state: str = "") -> None:
        """Flushes everything that was written to the disk. A writer with `resume=True` continues
        here.

        `state` is stored for it: the position of your program. Each call flushes the cache of the
        disk, so call it at most every few seconds.
        """
        self._open().checkpoint(text("checkpoint: state", state).encode())

    def close(self) -> None:
        """Completes the file. Closing twice is fine."""
        writer = self._core_writer
        if writer is not None:
            writer.close()
            self._core_writer = None

    def abort(self) -> None:
        """Discards the new file and its checkpoint. An earlier file of that name stays."""
        writer, self._core_writer = self._core_writer, None
        if writer is not None:
            writer.abort()
            writer.drop()

    def _drop(self) -> None:
        writer, self._core_writer = self._core_writer, None
        if writer is not None:
            writer.drop()

    def _open(self) -> Any:
        if self._core_writer is None:
            raise ValueError(f"write {printable(self._path)}: the writer was closed")
        return self._core_writer

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Completes the file, or after an error keeps the last checkpoint."""
        if kind is None:
            self.close()
        else:
            self._drop()

    def __del__(self) -> None:
        if self._core_writer is not None:
            warnings.warn(
                f"{printable(self._path)} was not closed and is discarded; use `with`, or close()",
                ResourceWarning,
                stacklevel=2,
            )
            self._drop()


def in_pieces(array: NDArray[Any], to: np.dtype[Any]) -> list[NDArray[Any]]:
    """Views of a few rows each, so that the copies, converted to another dtype, are small."""
    row = max(1, to.itemsize * int(np.prod(array.shape[1:], dtype=np.int64)))
    step = max(1, _PIECE // row)
    return [array[i : i + step] for i in range(0, len(array), step)]
