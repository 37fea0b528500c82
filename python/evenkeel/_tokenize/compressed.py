"""Reads compressed text piece by piece, with an error if it is damaged or truncated."""

from __future__ import annotations

import zlib
from typing import Any, BinaryIO

from evenkeel._files import printable
from evenkeel._tokenize.encoders import imported
from evenkeel._tokenize.inputs import Input


def read_piece(given: Input, stored: BinaryIO, file: Any, count: int, at: int) -> bytes:
    """Reads from the result of `decompressed`; `at` is the number of bytes read before, for
    errors."""
    try:
        data: bytes = file.read(count)
        return data
    except (EOFError, OSError, zlib.error) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ValueError(
            f"tokenize {printable(given.path)}: the {given.compression} data is damaged or"
            f" truncated after byte {at:,} of the text, near byte {stored.tell():,} of"
            f" {given.size:,} of the"
            f" file: {error}"
        ) from None


def decompressed(given: Input, stored: BinaryIO) -> Any:
    if given.compression == "gz":
        import gzip

        return gzip.GzipFile(fileobj=stored, mode="rb")
    return _Zstd(stored)


class _Zstd:
    """Frames of zstd, one after another. The library's own reader accepts a truncated frame as
    complete."""

    _STEP = 4 << 10  # of the file; it decompresses to at most 128 MiB

    def __init__(self, stored: BinaryIO) -> None:
        self._library = imported("zstandard", "zstandard")
        self._context = self._library.ZstdDecompressor()
        self._stored = stored
        self._frame: Any = None  # partly read
        self._ready = bytearray()

    def read(self, count: int) -> bytes:
        while len(self._ready) < count:
            data = self._stored.read(self._STEP)
            if not data:
                if self._frame is not None:
                    raise EOFError("a frame is not complete")
                break
            self._take(data)
        out = bytes(self._ready[:count])
        del self._ready[:count]
        return out

    def _take(self, data: bytes) -> None:
        while data:
            if self._frame is None:
                self._frame = self._context.decompressobj()
            try:
                self._ready += self._frame.decompress(data)
            except self._library.ZstdError as error:
                raise EOFError(str(error)) from None
            if not self._frame.eof:
                return
            data, self._frame = self._frame.unused_data, None

    def __enter__(self) -> _Zstd:
        return self

    def __exit__(self, *error: object) -> None:
        pass
