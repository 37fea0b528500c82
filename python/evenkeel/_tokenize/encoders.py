"""Tokenizers of other libraries, by name, by file or as objects, behind one small interface."""

from __future__ import annotations

import base64
import hashlib
import os
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

Spec = dict[str, Any]
Ids = NDArray[np.uint32]

# Tokens that end a document, in the order in which they are tried.
_ENDS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eot_id|>", "[SEP]")
_LIBRARIES = ("tiktoken", "hf", "sentencepiece", "python", "bytes")


def imported(module: str, package: str) -> Any:
    """Imports a library that only some users need."""
    try:
        return import_module(module)
    except ImportError:
        raise ImportError(
            f"tokenize: {package} is not installed\nhint: pip install {package}"
        ) from None


def spec_of(tokenizer: Any) -> Spec:
    """A description of a tokenizer, as JSON types. It has the names and fingerprints of files, and
    the contents of objects."""
    if isinstance(tokenizer, (str, os.PathLike)):
        return _named(os.fspath(tokenizer))
    if isinstance(tokenizer, dict):
        return dict(tokenizer)
    kind = type(tokenizer).__module__.partition(".")[0]
    if kind == "tiktoken":
        return _tiktoken_object(tokenizer)
    if kind == "tokenizers":
        return {"library": "hf", "json": tokenizer.to_str()}
    if kind == "transformers" and getattr(tokenizer, "backend_tokenizer", None) is not None:
        return {"library": "hf", "json": tokenizer.backend_tokenizer.to_str()}
    if kind == "sentencepiece":
        return {"library": "sentencepiece", "model": _text(tokenizer.serialized_model_proto())}
    raise TypeError(
        f"tokenize: a {type(tokenizer).__name__} is not a known tokenizer\nhint: pass a name such"
        " as 'gpt2', a tokenizer.json, a sentencepiece .model, an object of tiktoken, tokenizers"
        " or"
        " sentencepiece, or 'python:MODULE:NAME'"
    )


def _named(name: str) -> Spec:
    library, colon, rest = name.partition(":")
    if colon and library in _LIBRARIES:
        if library == "python":
            if rest.count(":") != 1:
                raise ValueError(f"tokenize: {name!r} is not of the form python:MODULE:NAME")
            return {"library": "python", "name": rest}
        if library == "tiktoken":
            return {"library": "tiktoken", "name": rest}
        return _file_or_name(library, rest)
    if name == "bytes":
        return {"library": "bytes"}
    if name.endswith(".model"):
        return _file_or_name("sentencepiece", name)
    if name.endswith(".json") or os.path.isdir(name) or "/" in name:
        return _file_or_name("hf", name)
    return {"library": "tiktoken", "name": name}


def _file_or_name(library: str, name: str) -> Spec:
    path = os.path.join(name, "tokenizer.json") if os.path.isdir(name) else name
    if os.path.exists(path):
        with open(path, "rb") as file:
            digest = hashlib.blake2b(file.read(), digest_size=16).hexdigest()
        return {"library": library, "file": os.path.abspath(path), "fingerprint": digest}
    if library == "hf" and not name.endswith(".json"):
        return {"library": "hf", "name": name}
    raise FileNotFoundError(f"tokenize: there is no tokenizer {name}")


def _tiktoken_object(encoding: Any) -> Spec:
    state = encoding.__getstate__()
    if isinstance(state, str):
        return {"library": "tiktoken", "name": state}
    return {
        "library": "tiktoken",
        "pattern": state["pat_str"],
        "ranks": {_text(token): rank for token, rank in state["mergeable_ranks"].items()},
        "special": state["special_tokens"],
    }


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


class Encoder:
    """One tokenizer. `encode` returns the tokens of each text."""

    def __init__(
        self,
        name: str,
        vocabulary: int,
        eot: int | None,
        encode: Callable[[Sequence[str]], list[Ids]],
        token_of: Callable[[str], int | None],
        memory: int,
    ) -> None:
        self.name = name
        self.vocabulary = vocabulary  # one more than the largest token
        self.eot = eot
        self.encode = encode
        self.token_of = token_of  # the number of a special token
        self.parses = name in ("tiktoken", "tokenizers")  # can parse special tokens in a text
        self.memory = memory  # the most bytes per byte of text while it is encoded


def load(spec: Spec, special: str = "text") -> Encoder:
    """`special`: whether special tokens in a text are treated as "text" or parsed ("parse")."""
    if special not in ("text", "parse"):
        raise ValueError(f'tokenize: special must be "text" or "parse"; got {special!r}')
    encoder = _load(spec, special)
    if special == "parse" and not encoder.parses:
        raise ValueError(
            f"tokenize: special tokens in a text cannot be parsed by {encoder.name}: it has no such"
            " option\nhint: omit --special parse (special='parse')"
        )
    return encoder


def _load(spec: Spec, special: str) -> Encoder:
    library = spec.get("library")
    if library == "bytes":
        return _of_bytes()
    if library == "tiktoken":
        return _of_tiktoken(_tiktoken_encoding(spec), special)
    if library == "hf":
        return _of_tokenizers(_hf_tokenizer(spec), special)
    if library == "sentencepiece":
        return _of_sentencepiece(_sentencepiece_processor(spec))
    if library == "python":
        return _of_python(spec["name"], special)
    raise ValueError(f"tokenize: there is no tokenizer library {library!r}")


def _checked_file(spec: Spec) -> str:
    path: str = spec["file"]
    with open(path, "rb") as file:
        digest = hashlib.blake2b(file.read(), digest_size=16).hexdigest()
    if digest != spec["fingerprint"]:
        raise ValueError(f"tokenize: {path} has changed since the work was planned")
    return path


def _tiktoken_encoding(spec: Spec) -> Any:
    tiktoken = imported("tiktoken", "tiktoken")
    if "ranks" in spec:
        return tiktoken.Encoding(
            "made",
            pat_str=spec["pattern"],
            mergeable_ranks={base64.b64decode(k): rank for k, rank in spec["ranks"].items()},
            special_tokens=spec["special"],
        )
    try:
        return tiktoken.get_encoding(spec["name"])
    except ValueError:
        known = ", ".join(tiktoken.list_encoding_names())
        raise ValueError(
            f"tokenize: there is no tokenizer {spec['name']!r}\nhint: tiktoken knows {known}; a"
            " file is FOLDER/tokenizer.json or FILE.model"
        ) from None


def _hf_tokenizer(spec: Spec) -> Any:
    tokenizers = imported("tokenizers", "tokenizers")
    if "json" in spec:
        return tokenizers.Tokenizer.from_str(spec["json"])
    if "file" in spec:
        return tokenizers.Tokenizer.from_file(_checked_file(spec))
    return tokenizers.Tokenizer.from_pretrained(spec["name"])


def _sentencepiece_processor(spec: Spec) -> Any:
    sentencepiece = imported("sentencepiece", "sentencepiece")
    if "model" in spec:
        return sentencepiece.SentencePieceProcessor(model_proto=base64.b64decode(spec["model"]))
    return sentencepiece.SentencePieceProcessor(model_file=_checked_file(spec))


def _of_bytes() -> Encoder:
    def encode(texts: Sequence[str]) -> list[Ids]:
        return [np.frombuffer(text.encode(), np.uint8).astype(np.uint32) for text in texts]

    return Encoder("bytes", 257, 256, encode, {"<|endoftext|>": 256}.get, 8)


def _of_tiktoken(encoding: Any, special: str) -> Encoder:
    allowed = encoding.special_tokens_set if special == "parse" else frozenset()
    to_numpy = getattr(encoding, "encode_to_numpy", None)  # without lists of Python numbers

    def encode(texts: Sequence[str]) -> list[Ids]:
        if to_numpy is not None:
            return [to_numpy(t, allowed_special=allowed, disallowed_special=()) for t in texts]
        done = (encoding.encode(t, allowed_special=allowed, disallowed_special=()) for t in texts)
        return [np.array(ids, np.uint32) for ids in done]

    tokens = {name: encoding.encode_single_token(name) for name in encoding.special_tokens_set}
    return Encoder("tiktoken", encoding.n_vocab, _first_of(tokens.get), encode, tokens.get, 16)


def _of_tokenizers(tokenizer: Any, special: str) -> Encoder:
    tokenizer.no_padding()
    tokenizer.no_truncation()
    if special == "text":
        tokenizer.encode_special_tokens = True
    batch = getattr(tokenizer, "encode_batch_fast", tokenizer.encode_batch)

    def encode(texts: Sequence[str]) -> list[Ids]:
        done = batch(list(texts), add_special_tokens=False)
        return [np.array(one.ids, np.uint32) for one in done]

    size = max(tokenizer.get_vocab().values(), default=0) + 1
    token_of = tokenizer.token_to_id
    return Encoder("tokenizers", size, _first_of(token_of), encode, token_of, 192)


def _of_sentencepiece(processor: Any) -> Encoder:
    def encode(texts: Sequence[str]) -> list[Ids]:
        done = processor.encode(list(texts), num_threads=1)
        return [np.array(one, np.uint32) for one in done]

    def token_of(name: str) -> int | None:
        token: int = processor.piece_to_id(name)
        return None if token == processor.unk_id() else token

    eot = processor.eos_id()
    return Encoder("sentencepiece", len(processor), eot if eot >= 0 else None, encode, token_of, 64)


def _of_python(name: str, special: str) -> Encoder:
    """An object of a library above, or a function that turns a list of texts into lists of
    tokens and has the attributes `vocabulary` and `eot`."""
    module, _, attribute = name.partition(":")
    found = getattr(import_module(module), attribute)
    kind = type(found).__module__.partition(".")[0]
    if kind == "tiktoken":
        return _of_tiktoken(found, special)
    if kind == "tokenizers":
        return _of_tokenizers(found, special)
    if kind == "sentencepiece":
        return _of_sentencepiece(found)
    if not callable(found) or not hasattr(found, "vocabulary"):
        raise TypeError(
            f"tokenize: python:{name} is neither a tokenizer nor a function with the attribute"
            " `vocabulary`, the number of its tokens"
        )

    def encode(texts: Sequence[str]) -> list[Ids]:
        return [np.asarray(one, np.uint32) for one in found(list(texts))]

    def token_of(name: str) -> int | None:
        return None

    return Encoder("python", found.vocabulary, getattr(found, "eot", None), encode, token_of, 192)


def _first_of(token_of: Callable[[str], Any]) -> int | None:
    for name in _ENDS:
        token: int | None = token_of(name)
        if token is not None:
            return token
    return None
