"""Input files: their kind, their fingerprints, and how they are divided into spans."""

from __future__ import annotations

import os
import stat
from dataclasses import asdict, dataclass
from typing import Any

from evenkeel._files import Paths, expand, is_url, printable
from evenkeel._manifest import fingerprint_of
from evenkeel._manifest import require_unchanged as require_same
from evenkeel._tokenize.encoders import imported

# Bytes of text per item of a worker. Outputs do not depend on it, but positions for resuming do.
PIECE = 1 << 20

_KINDS = {
    ".txt": "text",
    ".text": "text",
    ".md": "text",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".ipc": "arrow",
}
_COMPRESSIONS = {".gz": "gz", ".zst": "zst", ".zstd": "zst"}
KINDS = ("text", "jsonl", "parquet", "arrow")


@dataclass(frozen=True)
class Input:
    """One file. It can be divided into `units`: bytes of plain text, row groups of Parquet, record
    batches of Arrow; 1 if it cannot be divided."""

    path: str
    kind: str
    compression: str
    size: int
    fingerprint: str
    units: int

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def is_plain(self) -> bool:
        return self.kind in ("text", "jsonl") and not self.compression


@dataclass(frozen=True)
class Span:
    """Units [begin, end) of an input; for plain text, the documents that begin there."""

    input: int
    begin: int
    end: int


def find_inputs(paths: Paths, kind: str | None, whole_files: bool) -> list[Input]:
    """`whole_files`: each text file is one document."""
    if kind is not None and kind not in KINDS:
        raise ValueError(
            f"tokenize: the input format must be one of {', '.join(KINDS)}; got {kind!r}"
        )
    return [_input_of(os.fsdecode(path), kind, whole_files) for path in expand(paths)]


def _input_of(path: str, kind: str | None, whole_files: bool) -> Input:
    if is_url(os.fsencode(path)):
        raise ValueError(
            f"tokenize {printable(path)}: inputs must be files, not URLs\nhint: copy it to a local"
            " disk, or mount the bucket"
        )
    base, ending = os.path.splitext(path)
    compression = _COMPRESSIONS.get(ending.lower(), "")
    if compression:
        ending = os.path.splitext(base)[1]
    found = kind or _KINDS.get(ending.lower())
    if found is None:
        raise ValueError(
            f"tokenize {printable(path)}: the format is not clear from the name\nhint: pass"
            " --input-format text, jsonl, parquet or arrow"
        )
    if compression and found in ("parquet", "arrow"):
        raise ValueError(
            f"tokenize {printable(path)}: {found} files have their own compression, and cannot be"
            f" read from {compression} files\nhint: decompress it"
        )
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode) and not stat.S_ISDIR(status.st_mode):
        raise ValueError(
            f"tokenize {printable(path)}: this is not a regular file\nhint: pipes and devices"
            " cannot be read at any offset; copy the data into a file"
        )
    size = status.st_size
    path = os.path.abspath(path)
    units = 1
    if found == "parquet":
        units = _pyarrow("pyarrow.parquet").ParquetFile(path).num_row_groups
    elif found == "arrow":
        units = _record_batches(path)
    elif not compression and not (whole_files and found == "text"):
        units = size
    return Input(path, found, compression, size, fingerprint_of(path), units)


def _pyarrow(module: str) -> Any:
    return imported(module, "pyarrow")


def is_arrow_stream(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(6) != b"ARROW1"


def _record_batches(path: str) -> int:
    """The number of batches in a file; a stream has no index of them and counts as one."""
    ipc, arrow = _pyarrow("pyarrow.ipc"), _pyarrow("pyarrow")
    if is_arrow_stream(path):
        return 1
    with arrow.OSFile(path) as file:
        count: int = ipc.open_file(file).num_record_batches
        return count


def require_unchanged(given: Input) -> None:
    require_same(given.path, given.size, given.fingerprint, "tokenize")


def all_spans(inputs: list[Input]) -> list[Span]:
    return [Span(i, 0, given.units) for i, given in enumerate(inputs)]


def cut(inputs: list[Input], parts: int) -> list[list[Span]]:
    """Parts of about the same size, in the order of the inputs. There are fewer if inputs cannot be
    divided that finely; none is empty."""
    total = sum(given.size for given in inputs)
    out: list[list[Span]] = []
    part: list[Span] = []
    before = 0  # bytes of the inputs that are in earlier parts
    for i, given in enumerate(inputs):
        begin = 0
        while begin < given.units:
            # The part ends where its share of all bytes ends, at a whole unit.
            share = total * (len(out) + 1) // parts - before
            end = -(-share * given.units // max(1, given.size))
            end = given.units if len(out) == parts - 1 else max(begin, min(end, given.units))
            if end > begin:
                part.append(Span(i, begin, end))
            begin = end
            done = before + given.size * end // given.units
            if part and done >= total * (len(out) + 1) // parts and len(out) < parts - 1:
                out.append(part)
                part = []
            elif end < given.units and not part:
                # Units are larger than parts: this unit gets its own part.
                part.append(Span(i, begin, begin + 1))
                begin += 1
        before += given.size
    if part:
        out.append(part)
    return out or [[]]
