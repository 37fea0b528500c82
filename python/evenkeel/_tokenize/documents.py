"""Finds documents in text files, independent of how the files are divided."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from evenkeel._files import printable
from evenkeel._tokenize.compressed import decompressed, read_piece
from evenkeel._tokenize.encoders import imported
from evenkeel._tokenize.inputs import PIECE, Input, Span, is_arrow_stream, require_unchanged

_STEP = 256 << 10  # bytes that are read at a time to find the end of a document
Message = tuple[Any, ...]
Position = tuple[int, int]  # a span, and an item of it


class Splitter:
    """The separator between documents. Its occurrences cannot overlap, so the same ones are found
    wherever a file is divided: a run of one repeated character, such as blank lines, is one
    separator of any length, and other separators that end as they begin are refused."""

    def __init__(self, separator: str) -> None:
        mark = separator.encode()
        if not mark:
            raise ValueError("tokenize: the separator is empty")
        self.mark = mark
        self.repeats = mark[:1] if len(mark) > 1 and len(set(mark)) == 1 else b""
        if not self.repeats and any(mark[:n] == mark[-n:] for n in range(1, len(mark))):
            raise ValueError(
                f"tokenize: the separator {separator!r} could overlap itself: it ends as it begins"
                "\nhint: use a shorter one that does not"
            )
        pattern = f"{re.escape(separator[0])}{{{len(mark)},}}"  # a repeated byte is a character
        pattern = pattern if self.repeats else re.escape(separator)
        self._bytes = re.compile(pattern.encode())
        self._text = re.compile(pattern) if self.repeats else None
        self._separator = separator

    def split(self, text: str) -> list[str]:
        return self._text.split(text) if self._text else text.split(self._separator)

    def length(self, block: bytes) -> int:
        """The length of the separator at the beginning of a block."""
        if not self.repeats:
            return len(self.mark)
        return len(block) - len(block.lstrip(self.repeats))

    def without_last(self, block: bytes) -> bytes:
        """A block without the separator at its end, if there is one."""
        if not block.endswith(self.mark):
            return block
        return block.rstrip(self.repeats) if self.repeats else block[: -len(self.mark)]

    def last(self, block: bytes) -> int:
        """Where the last separator of a block begins, except one at the beginning of the block."""
        at = block.rfind(self.mark)
        while self.repeats and at > 0 and block[at - 1 : at] == self.repeats:
            at -= 1
        return max(at, 0)

    def find(self, block: bytes | bytearray, start: int, end: int) -> tuple[int, int] | None:
        """The first separator after `start` that ends at `end` or later."""
        for found in self._bytes.finditer(block, start):
            if found.end() >= end:
                return found.start(), found.end()
        return None


LINES = Splitter("\n")


class TooLong(ValueError):
    """A document that does not fit the memory of a worker."""


def too_long(path: str, offset: int, most: int, where: str = "byte") -> TooLong:
    return TooLong(
        f"tokenize {printable(path)}: the document at {where} {offset:,} has more than {most:,}"
        " bytes, the limit for a worker within the budget"
    )


def read_documents(
    path: str, begin: int, end: int, by: Splitter, most: int
) -> tuple[int, bytes | None]:
    """The documents that begin in bytes [begin, end) of a file: their position and their text; None
    if no document begins there, not even an empty one."""
    with open(path, "rb", buffering=0) as file:
        base = max(0, begin - len(by.mark))
        file.seek(base)
        block = bytearray()
        ended = not _more(file, block, end - base)
        first = 0
        if begin > 0:
            found, ended = _boundary(file, block, 0, begin - base, by, ended, most)
            if found is None:
                return end, None  # the previous document extends beyond the range
            first = found[1]
        if base + first >= end:
            return end, None
        start = max(first, end - base - len(by.mark))
        found, ended = _boundary(file, block, start, end - base, by, ended, most)
        stop = len(block) if found is None else found[0]
        if found is None and not ended:
            last = by.last(bytes(block[first:])) + first
            raise too_long(path, base + last, most)
        with memoryview(block) as view:
            text = bytes(view[first:stop])  # one copy
        return base + first, text.rstrip(by.repeats) if found and by.repeats else text


def _boundary(
    file: Any, block: bytearray, start: int, end: int, by: Splitter, ended: bool, most: int
) -> tuple[tuple[int, int] | None, bool]:
    """Like Splitter.find, but reads on until it finds one, the file ends, or the document is too
    long."""
    while True:
        found = by.find(block, start, end)
        # A repeated character may continue in the part that was not read yet.
        if found and (ended or not by.repeats or found[1] < len(block)):
            return found, ended
        if ended or len(block) - end > most:
            return (found if ended else None), ended
        start = max(start, len(block) - len(by.mark)) if not found else start
        ended = not _more(file, block, _STEP)


def _more(file: Any, block: bytearray, count: int) -> bool:
    """Reads `count` bytes; False at the end of the file."""
    while count > 0:
        data = file.read(count)
        if not data:
            return False
        block += data
        count -= len(data)
    return True


def texts_of(
    block: bytes, path: str, offset: int, kind: str, by: Splitter | None, key: str, invalid: str
) -> list[str]:
    """The texts of a block of whole documents. `by` is None if the block is one document."""
    try:
        text = block.decode("utf-8", "replace" if invalid == "replace" else "strict")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"tokenize {printable(path)}: byte {offset + error.start:,} is not UTF-8"
            f" ({error.reason})\nhint: --invalid replace puts U+FFFD there"
        ) from None
    if kind == "jsonl":
        return _texts_of_json(text, path, offset, key)
    if by is None:
        return [text]
    texts = by.split(text)
    if by.mark == b"\n" and "\r" in text:
        texts = [line[:-1] if line.endswith("\r") else line for line in texts]
    return texts


def _texts_of_json(block: str, path: str, offset: int, key: str) -> list[str]:
    texts = []
    lines = block.split("\n")
    load = json.loads
    number = 0
    try:
        for number, line in enumerate(lines):  # noqa: B007, of the error below
            if not line or line.isspace():
                continue
            text = load(line)[key]
            if text.__class__ is not str:
                if text is not None:
                    raise TypeError(f"{key!r} is not a string but {type(text).__name__}")
                text = ""
            texts.append(text)
    except (ValueError, LookupError, TypeError) as error:
        at = offset + sum(len(line.encode()) + 1 for line in lines[:number])
        wrong = _wrong_json(lines[number], key, error)
        raise ValueError(f"tokenize {printable(path)}: the line at byte {at:,} {wrong}") from None
    return texts


def _wrong_json(line: str, key: str, error: Exception) -> str:
    try:
        value = json.loads(line)
    except ValueError:
        return f"is not JSON: {error}"
    if not isinstance(value, dict):
        return f"is not a JSON object but {type(value).__name__}"
    if key not in value:
        names = ", ".join(map(repr, list(value)[:8])) or "none"
        return f"has no key {key!r}\nhint: --text-key; its keys are {names}"
    return f"cannot be used: {error}"


# ---- the items for the workers, in order


def items(
    inputs: Sequence[Input],
    spans: Sequence[Span],
    start: Position,
    by: Splitter | None,
    key: str,
    most: int,
) -> Iterator[tuple[Position, int, Message]]:
    """Items from `start` on, each with the position after it and the bytes of the inputs up to
    there. Workers read ranges of plain files themselves; inputs that must be decompressed or
    decoded in order are read here."""
    at, skip = start
    done = sum(span_bytes(inputs, span) for span in spans[:at])
    while at < len(spans):
        span = spans[at]
        given = inputs[span.input]
        require_unchanged(given)
        count = 1
        if given.is_plain and given.kind == "text" and by is None:
            count, files = _small_files(inputs, spans, at)
            size = sum(span_bytes(inputs, one) for one in spans[at : at + count])
            yield (at + count, 0), done + size, ("files", files)
        elif given.is_plain:
            for n, begin in enumerate(range(span.begin, span.end, PIECE)):
                if n >= skip:
                    end = min(begin + PIECE, span.end)
                    message = ("range", given.path, given.kind, begin, end)
                    yield (at, n + 1), done + end - span.begin, message
        else:
            inside = (
                _compressed(given, by, most)
                if given.compression
                else _columns(given, span, key, most)
            )
            for n, (read, message) in enumerate(inside):
                if n >= skip:
                    yield (at, n + 1), done + read, message
        done += sum(span_bytes(inputs, one) for one in spans[at : at + count])
        at, skip = at + count, 0


def span_bytes(inputs: Sequence[Input], span: Span) -> int:
    given = inputs[span.input]
    return given.size * (span.end - span.begin) // max(1, given.units)


def _small_files(inputs: Sequence[Input], spans: Sequence[Span], at: int) -> tuple[int, list[str]]:
    """Files of one document each, as many as make a piece."""
    files: list[str] = []
    size = 0
    for span in spans[at:]:
        given = inputs[span.input]
        if not given.is_plain or given.kind != "text":
            break
        if files:
            require_unchanged(given)
        files.append(given.path)
        size += given.size
        if size >= PIECE:
            break
    return len(files), files


def _compressed(given: Input, by: Splitter | None, most: int) -> Iterator[tuple[int, Message]]:
    splitter = LINES if given.kind == "jsonl" else by
    with open(given.path, "rb") as stored, decompressed(given, stored) as file:
        offset = 0  # of `block` in what was compressed
        block = b""
        while True:
            data = read_piece(given, stored, file, PIECE, offset + len(block))
            block += data
            if len(block) > most + (PIECE if splitter else 0):
                raise too_long(given.path, offset, most)
            if data and splitter is None:
                continue
            stop = splitter.last(block) if data and splitter else len(block)
            # A block begins with the separator at the end of the previous one. The last block may
            # end with a separator.
            begin = splitter.length(block) if offset and splitter else 0
            text = block[begin:stop]
            if not data and splitter:
                text = splitter.without_last(text)
            if splitter is None or stop > (0 if data else begin):
                yield stored.tell(), ("block", given.path, given.kind, offset + begin, text)
            offset, block = offset + stop, block[stop:]
            if not data:
                return


def _columns(given: Input, span: Span, key: str, most: int) -> Iterator[tuple[int, Message]]:
    row = 0
    size = given.size * (span.end - span.begin) // max(1, given.units)
    for rows, batch in _batches(given, span, key):
        done = size * (row + batch.num_rows) // max(1, rows) if rows else 0
        for message in column_pieces(batch.column(0), given.path, row, most):
            yield done, message
        row += batch.num_rows


def _batches(given: Input, span: Span, key: str) -> Iterator[tuple[int, Any]]:
    """Batches of rows, and the total number of rows, 0 if it is not known."""
    if given.kind == "parquet":
        file = imported("pyarrow.parquet", "pyarrow").ParquetFile(
            given.path, buffer_size=PIECE, pre_buffer=False
        )
        _require_column(given.path, file.schema_arrow, key)
        groups = list(range(span.begin, span.end))
        rows = sum(file.metadata.row_group(g).num_rows for g in groups)
        size = sum(file.metadata.row_group(g).total_byte_size for g in groups)
        step = max(1, min(4096, 2 * PIECE * max(1, rows) // max(1, size)))
        for batch in file.iter_batches(step, groups, columns=[key], use_threads=False):
            yield rows, batch
        return
    arrow, ipc = imported("pyarrow", "pyarrow"), imported("pyarrow.ipc", "pyarrow")
    with arrow.OSFile(given.path) as stored:
        if is_arrow_stream(given.path):
            stream = ipc.open_stream(stored)
            _require_column(given.path, stream.schema, key)
            for batch in stream:
                yield 0, batch.select([key])
            return
        reader = ipc.open_file(stored)
        _require_column(given.path, reader.schema, key)
        for n in range(span.begin, span.end):
            yield 0, reader.get_batch(n).select([key])


def _require_column(path: str, schema: Any, key: str) -> None:
    if key not in schema.names:
        names = ", ".join(map(repr, schema.names[:8]))
        raise ValueError(
            f"tokenize {printable(path)}: there is no column {key!r}\nhint: --text-key; its columns"
            f" are {names}"
        )


def column_pieces(column: Any, path: str, row: int, most: int) -> Iterator[Message]:
    """Lengths and bytes of texts, about one piece at a time."""
    arrow = imported("pyarrow", "pyarrow")
    if arrow.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    texts = column.cast(arrow.large_string()).fill_null("")
    if len(texts) == 0:
        return
    ends = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset :][: len(texts) + 1]
    data = texts.buffers()[2]
    begin = 0
    while begin < len(texts):
        end = int(np.searchsorted(ends, ends[begin] + PIECE, "right")) - 1
        end = min(max(end, begin + 1), len(texts))
        if ends[end] - ends[begin] > max(most, PIECE):
            raise too_long(path, row + begin, most, "row")
        piece = data[int(ends[begin]) : int(ends[end])].to_pybytes() if data else b""
        lengths = np.diff(ends[begin : end + 1])
        yield "texts", path, row + begin, lengths.tobytes(), piece
        begin = end
