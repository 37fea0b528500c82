"""evenkeel.tokenize and evenkeel.plan."""

from __future__ import annotations

from typing import Any

from evenkeel._core import Budget
from evenkeel._files import AnyBudget, PathLike, Paths
from evenkeel._manifest import Manifest, Progress
from evenkeel._tokenize.inputs import all_spans
from evenkeel._tokenize.job import OPTIONS, make_job
from evenkeel._tokenize.manifest import make_manifest
from evenkeel._tokenize.run import run


def tokenize(
    inputs: Paths,
    output: PathLike,
    tokenizer: Any = "gpt2",
    *,
    format: str | None = None,
    dtype: Any = None,
    eot: int | str | None = "auto",
    text_key: str = "text",
    separator: str | None = None,
    input_format: str | None = None,
    invalid: str = "error",
    special: str = "text",
    val_share: float = 0.0,
    val_output: PathLike | None = None,
    seed: int = 0,
    workers: int | None = None,
    budget: AnyBudget = None,
    checkpoint: int | str = "256MiB",
    checksums: bool = False,
    resume: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Converts text files to a token file, on all cores, in bounded memory.

    The output is the same for any number of workers and any budget. The files appear under their
    names when they are complete; see `evenkeel.TokenWriter`. Returns the figures of the run.

    - `inputs`: files or patterns: .txt, .jsonl, .parquet, .arrow; text also as .gz and .zst.
    - `output`: the token file. `{}` in its name becomes "train" and "val".
    - `tokenizer`: an encoding of tiktoken ("gpt2"), a tokenizer.json or its folder, a sentencepiece
      .model, a name on the Hugging Face hub ("org/name"), an object of one of these libraries,
      "python:MODULE:NAME", or "bytes".
    - `format`: "nanogpt", "llm.c", "megatron", "datatrove" or "npy"; default: by the file name.
    - `dtype`: default: uint16 if all tokens fit, otherwise uint32 (Megatron: int32).
    - `eot`: the token between documents: a number, the text of a special token, None for none, or
      "auto": the tokenizer's own.
    - `text_key`: the key or column that holds the text.
    - `separator`: the text between documents of .txt files; "\\n" for lines. Default: a file is one
      document.
    - `invalid`: "error" or "replace", for bytes that are not UTF-8.
    - `special`: whether special tokens in the text are treated as "text" or parsed ("parse").
    - `val_share`: the share of documents that goes to `val_output`, chosen by their text and
      `seed`.
    - `workers`: processes; default: one for each core. With 0, the calling process does the work.
    - `budget`: memory for documents and tokens in progress; see docs/tokenize.md.
    - `checkpoint`: bytes of text between two checkpoints, from which a killed run can continue.
    - `resume`: continues a run that was killed; does nothing if it was complete.

    >>> import evenkeel
    >>> open("poem.txt", "w").write("roses\\nviolets\\n")
    14
    >>> made = evenkeel.tokenize("poem.txt", "poem.bin", "bytes", separator="\\n", workers=0)
    >>> made["documents"], len(evenkeel.tokens("poem.bin"))
    (2, 14)
    """
    given = {name: value for name, value in locals().items() if name in OPTIONS}
    _require_inputs(inputs)
    job, encoder = make_job(inputs, output, **given)
    return run(
        job,
        encoder,
        all_spans(list(job.inputs)),
        workers=workers,
        budget=budget,
        resume=resume,
        checkpoint=Budget(checkpoint).limit,
        progress=progress,
    )


def plan(
    inputs: Paths,
    output: PathLike,
    tokenizer: Any = "gpt2",
    *,
    parts: int,
    scratch: PathLike | None = None,
    format: str | None = None,
    dtype: Any = None,
    eot: int | str | None = "auto",
    text_key: str = "text",
    separator: str | None = None,
    input_format: str | None = None,
    invalid: str = "error",
    special: str = "text",
    val_share: float = 0.0,
    val_output: PathLike | None = None,
    seed: int = 0,
    checksums: bool = False,
) -> Manifest:
    """Divides the work of `evenkeel.tokenize` into parts for the machines of a cluster.

    - `parts`: the number of parts, of about equal size. There may be fewer: compressed files and
      row groups of Parquet are not divided.
    - `scratch`: a folder for the parts, visible to all machines. Default: beside the output.

    The rest is as for `evenkeel.tokenize`. See `evenkeel.Manifest`.
    """
    given = {name: value for name, value in locals().items() if name in OPTIONS}
    _require_inputs(inputs)
    job, _ = make_job(inputs, output, **given)
    return make_manifest(job, parts, scratch)


def _require_inputs(inputs: Paths | None) -> None:
    """`make_job` also makes jobs whose text does not come from files; without this, None would
    replace the output by an empty one."""
    if inputs is None:
        raise TypeError("tokenize: inputs must be files or patterns; got None")
