"""A process that tokenizes: it reads items from stdin and writes tokens to stdout, both pickled."""

from __future__ import annotations

import hashlib
import os
import pickle
import queue
import resource
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from evenkeel._tokenize import encoders
from evenkeel._tokenize.documents import (
    LINES,
    Message,
    Splitter,
    read_documents,
    texts_of,
    too_long,
)
from evenkeel._tokenize.job import Job

_GROUP = 256 << 10  # bytes of text that are passed to a library at a time

# For each output: tokens as bytes, and the lengths of documents as bytes of int64.
Tokens = list[tuple[bytes, bytes]]


class Work:
    """Processes an item. The result is a pure function of the job and the item."""

    def __init__(self, job: Job, most: int) -> None:
        self._job = job
        self._most = most
        self._by = job.splitter()
        self._encoder = encoders.load(job.tokenizer, job.special)
        self._dtype = np.dtype(job.dtype)
        self._largest = int(np.iinfo(self._dtype).max)
        self._val_below = int(job.val_share * (1 << 64)) if len(job.outputs) > 1 else 0
        self._key = str(job.seed).encode()[:64]
        self._escapes = False  # JSON may hold halves of surrogate pairs; UTF-8 does not

    def __call__(self, message: Message) -> tuple[Tokens, dict[str, int]]:
        counts = {"documents": 0, "empty": 0, "text_bytes": 0}
        parts: list[list[Any]] = [[] for _ in self._job.outputs]
        for texts in self._groups(message, counts):
            for text, ids in zip(texts, self._encode(texts)):
                if len(ids):
                    parts[self._output_of(text)].append(ids)
                else:
                    counts["empty"] += 1
        out = []
        for arrays in parts:
            counts["documents"] += len(arrays)
            lengths = np.fromiter(map(len, arrays), np.int64, len(arrays))
            joined = np.concatenate(arrays) if arrays else np.empty(0, np.uint32)
            if len(joined) and int(joined.max()) > self._largest:
                raise ValueError(
                    f"tokenize: token {int(joined.max())} does not fit {self._dtype}, although the"
                    f" tokenizer reports a vocabulary of {self._encoder.vocabulary:,}"
                )
            out.append((joined.astype(self._dtype, copy=False).tobytes(), lengths.tobytes()))
        return out, counts

    def _encode(self, texts: list[str]) -> list[Any]:
        if self._escapes:
            texts = [_mended(text) for text in texts]
        return self._encoder.encode(texts)

    def _output_of(self, text: str) -> int:
        """Depends only on the text, so that the same document always goes to the same output."""
        if not self._val_below:
            return 0
        data = text.encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(data, digest_size=8, key=self._key).digest()
        return int(int.from_bytes(digest, "little") < self._val_below)

    def _groups(self, message: Message, counts: dict[str, int]) -> Iterator[list[str]]:
        group: list[str] = []
        size = 0
        for texts in self._texts(message):
            for text in texts:
                if not text:
                    counts["empty"] += 1
                    continue
                group.append(text)
                size += len(text)
                if size >= _GROUP:
                    yield group
                    group, size = [], 0
        if group:
            yield group
        counts["text_bytes"] = self._read

    def _texts(self, message: Message) -> Iterator[Sequence[str]]:
        job, kind = self._job, message[0]
        self._read = 0
        self._escapes = False
        if kind == "range":
            _, path, format, begin, end = message
            by = LINES if format == "jsonl" else self._by
            assert by is not None
            at, block = read_documents(path, begin, end, by, self._most)
            self._read = end - begin
            if block is None:
                return
            yield self._texts_of(block, path, at, format, by)
        elif kind == "files":
            for path in message[1]:
                with open(path, "rb") as file:
                    block = file.read(self._most + 1)
                if len(block) > self._most:
                    raise too_long(path, 0, self._most)
                self._read += len(block)
                yield texts_of(block, path, 0, "text", None, job.text_key, job.invalid)
        elif kind == "block":
            _, path, format, at, block = message
            by = LINES if format == "jsonl" else self._by
            self._read = len(block)
            yield self._texts_of(block, path, at, format, by)
        else:
            _, path, _row, lengths, data = message
            ends = np.cumsum(np.frombuffer(lengths, np.int64)).tolist()
            self._read = len(data)
            yield [
                str(data[begin:end], "utf-8", "replace" if job.invalid == "replace" else "strict")
                for begin, end in zip([0, *ends], ends)
            ]

    def _texts_of(
        self, block: bytes, path: str, at: int, format: str, by: Splitter | None
    ) -> list[str]:
        texts = texts_of(block, path, at, format, by, self._job.text_key, self._job.invalid)
        # Python knows without looking which texts are ASCII; most often all are.
        ascii = all(map(str.isascii, texts))
        self._escapes = format == "jsonl" and not ascii and b"\\u" in block
        return texts


def _mended(text: str) -> str:
    """Replaces halves of surrogate pairs, which JSON can contain and libraries refuse."""
    try:
        text.encode()
        return text
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def main() -> None:
    """Runs until stdin ends. A thread reads items, so that neither side waits for the other."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends the workers
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    os.environ["RAYON_NUM_THREADS"] = "1"
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # keep what libraries print out of the answers
    source = sys.stdin.buffer
    waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def read() -> None:
        try:
            while True:
                waiting.put(pickle.load(source))
        except (EOFError, pickle.UnpicklingError):
            pass  # the parent ended, perhaps in the middle of a message
        finally:
            waiting.put(None)

    job, most = pickle.load(source)
    threading.Thread(target=read, daemon=True).start()
    try:
        work = Work(job, most)
        while True:
            message = waiting.get()
            if message is None:
                break
            answer = work(message)
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            _send(answers, ("tokens", *answer, peak))
    except BrokenPipeError:
        pass
    except Exception as error:
        _send(answers, ("error", type(error).__name__, str(error)))
    os._exit(0)  # the reading thread may still be waiting


def _send(answers: Any, answer: Any) -> None:
    pickle.dump(answer, answers, protocol=5)
    answers.flush()
