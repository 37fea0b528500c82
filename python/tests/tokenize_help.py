"""Texts and tokenizers that tests make: nothing is loaded from elsewhere."""

import random
from functools import cache

import pytest

# GPT-2's.
PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""


def made_texts(count, seed=1, words=60):
    """Texts of up to so many words, most of them common ones."""
    draw = random.Random(seed)
    letters = "etaoinshrdlu"
    known = ["".join(draw.choices(letters, k=draw.randint(1, 8))) for _ in range(400)]
    known += ["it's", "naïve", "42", "...", "x\ny"]
    texts = []
    for _ in range(count):
        count = draw.randint(1, words)
        texts.append(" ".join(known[int(len(known) * draw.random() ** 2)] for _ in range(count)))
    return texts


@cache
def made_tokenizer():
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=500,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(made_texts(200), trainer)
    return tokenizer


@cache
def made_encoding():
    tiktoken = pytest.importorskip("tiktoken")
    ranks = {bytes([n]): n for n in range(256)}
    for text in made_texts(100):
        for word in text.split():
            token = f" {word}".encode()
            for end in range(2, len(token) + 1):  # each is made of one that is known, and a byte
                ranks.setdefault(token[:end], len(ranks))
    return tiktoken.Encoding(
        "made",
        pat_str=PATTERN,
        mergeable_ranks=ranks,
        special_tokens={"<|endoftext|>": len(ranks)},
    )
