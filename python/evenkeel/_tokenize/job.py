"""Everything that determines the outputs of a tokenize job, byte for byte, and the defaults."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from evenkeel._files import PathLike, Paths, printable
from evenkeel._manifest import digest, require_file
from evenkeel._stepping import real, text, whole
from evenkeel._tokenize import encoders
from evenkeel._tokenize.documents import Splitter
from evenkeel._tokenize.inputs import Input, find_inputs

# The options of `make_job` besides files. The options of the command have the same names.
OPTIONS = (
    "tokenizer format dtype eot text_key separator input_format invalid special val_share"
    " val_output seed checksums"
).split()
FORMATS = ("nanogpt", "llm.c", "megatron", "datatrove", "npy")


@dataclass(frozen=True)
class Job:
    """All fields are JSON types except `inputs`. Equal jobs have equal outputs."""

    inputs: tuple[Input, ...]
    outputs: tuple[str, ...]  # the training set, and the validation set if there is one
    tokenizer: dict[str, Any]
    text_key: str
    separator: str | None
    invalid: str
    special: str
    format: str
    dtype: str
    eot: int | None
    val_share: float
    seed: int
    checksums: bool
    part: str = ""  # the spans of a part of a manifest, so that parts have different fingerprints

    def as_json(self) -> dict[str, Any]:
        out = {field.name: getattr(self, field.name) for field in fields(self)}
        out["inputs"] = [given.as_json() for given in self.inputs]
        out["outputs"] = list(self.outputs)
        return out

    @staticmethod
    def of_json(stored: dict[str, Any]) -> Job:
        values = {field.name: stored[field.name] for field in fields(Job)}
        values["inputs"] = tuple(Input(**given) for given in stored["inputs"])
        values["outputs"] = tuple(stored["outputs"])
        return Job(**values)

    def fingerprint(self) -> str:
        """A fingerprint of everything that the bytes of the outputs depend on."""
        return digest(self.as_json())

    def splitter(self) -> Splitter | None:
        return None if self.separator is None else Splitter(self.separator)

    def with_dtype(self, dtype: str) -> Job:
        return replace(self, dtype=dtype)


def make_job(
    inputs: Paths | None,
    output: PathLike,
    *,
    tokenizer: Any,
    format: str | None,
    dtype: Any,
    eot: int | str | None,
    text_key: str,
    separator: str | None,
    input_format: str | None,
    invalid: str,
    special: str,
    val_share: float,
    val_output: PathLike | None,
    seed: int,
    checksums: bool,
) -> tuple[Job, encoders.Encoder]:
    if invalid not in ("error", "replace"):
        raise ValueError(f'tokenize: invalid must be "error" or "replace"; got {invalid!r}')
    val_share = real("tokenize: val_share", val_share)
    if not 0 <= val_share < 1:
        raise ValueError(
            f"tokenize: val_share must be a share of all documents, from 0 to 1; got {val_share}"
        )
    if separator is not None:
        Splitter(text("tokenize: separator", separator))
    text("tokenize: text_key", text_key)
    seed = whole("tokenize: seed", seed)
    spec = encoders.spec_of(tokenizer)
    encoder = encoders.load(spec, special)
    outputs = _outputs(os.fsdecode(output), val_share, val_output)
    kind = _format(outputs[0], format)
    token = _eot(encoder, eot, kind)
    found = [] if inputs is None else find_inputs(inputs, input_format, separator is None)
    _require_apart(found, outputs, kind)
    job = Job(
        inputs=tuple(found),
        outputs=tuple(outputs),
        tokenizer=spec,
        text_key=text_key,
        separator=separator,
        invalid=invalid,
        special=special,
        format=kind,
        dtype=_dtype(encoder, token, kind, dtype),
        eot=token,
        val_share=val_share,
        seed=seed,
        checksums=bool(checksums),
    )
    return job, encoder


def _outputs(output: str, val_share: float, val_output: PathLike | None) -> list[str]:
    for given in (output, *([] if val_output is None else [os.fsdecode(val_output)])):
        require_file(given, "tokenize")
    folder, base = os.path.split(output)
    if "{}" in base:
        train = os.path.join(folder, base.replace("{}", "train"))
        val = os.path.join(folder, base.replace("{}", "val"))
    else:
        train = output
        val = os.path.join(folder, base.replace("train", "val")) if "train" in base else ""
    if val_share == 0:
        if val_output is not None:
            raise ValueError(
                "tokenize: val_output needs val_share, the share of documents that go there"
            )
        return [os.path.abspath(train)]
    if val_output is not None:
        val = os.fsdecode(val_output)
    if not val:
        raise ValueError(
            "tokenize: there is no output for the validation documents\nhint: pass val_output"
            f" (--val-output), or an output with 'train' or '{{}}' in its name; it is"
            f" {printable(base)}"
        )
    if os.path.abspath(val) == os.path.abspath(train):
        raise ValueError(f"tokenize: both outputs are {printable(train)}")
    return [os.path.abspath(train), os.path.abspath(val)]


def _require_apart(inputs: list[Input], outputs: list[str], format: str) -> None:
    """Checks all files that are written: the tokens, an index, and the report of the first
    output."""
    read = {os.path.realpath(given.path) for given in inputs}
    written = [*outputs, *(output + ".index" for output in outputs), outputs[0] + ".tokenize.json"]
    if format == "megatron":
        files = [tokens_at(format, output) for output in outputs]
        written = [*files, *(path[:-4] + ".idx" for path in files), files[0] + ".tokenize.json"]
    for path in written:
        if os.path.realpath(path) in read:
            raise ValueError(
                f"tokenize {printable(path)}: the output is also an input, and would replace it"
            )


def tokens_at(format: str, path: str) -> str:
    """The path of the token file: Megatron's outputs are named without .bin and .idx."""
    if format != "megatron":
        return path
    return (path[:-4] if path.endswith((".bin", ".idx")) else path) + ".bin"


def _format(output: str, format: str | None) -> str:
    if format is None:
        endings = {".npy": "npy", ".ds": "datatrove", ".idx": "megatron"}
        return endings.get(os.path.splitext(output)[1], "nanogpt")
    format = {"llmc": "llm.c"}.get(format, format)
    if format not in FORMATS:
        raise ValueError(
            f"tokenize: there is no token format {format!r}; use one of {', '.join(FORMATS)}"
        )
    return format


def _eot(encoder: encoders.Encoder, eot: int | str | None, format: str) -> int | None:
    if eot is None or eot == "none":
        return None
    if eot == "auto":
        if encoder.eot is None and format not in ("megatron", "datatrove"):
            raise ValueError(
                "tokenize: the tokenizer has no known token for the end of a document, and"
                f" {format} files have no index of documents\nhint: use --eot NUMBER, --eot TOKEN,"
                " or --eot none"
            )
        return encoder.eot
    if isinstance(eot, str) and not eot.isdigit():
        token = encoder.token_of(eot)
        if token is None:
            raise ValueError(f"tokenize: the tokenizer has no special token {eot!r}")
        return token
    return int(eot) if isinstance(eot, str) else whole("tokenize: eot", eot)


def _dtype(encoder: encoders.Encoder, eot: int | None, format: str, dtype: Any) -> str:
    largest = max(encoder.vocabulary - 1, eot or 0)
    if dtype is None:
        if format == "megatron":  # as Megatron itself chooses
            return "uint16" if encoder.vocabulary < 65500 and largest < 65536 else "int32"
        return "uint16" if largest < 65536 else "uint32"
    chosen = np.dtype(dtype)
    if chosen.kind not in "iu" or np.iinfo(chosen).max < largest:
        raise ValueError(
            f"tokenize: {chosen} does not hold the tokenizer's largest token, {largest:,}\nhint:"
            f" dtype={'int32' if format == 'megatron' else 'uint32'!r}"
        )
    return str(chosen.name)
