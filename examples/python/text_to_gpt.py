"""Raw text to a trained small GPT, in one script: tokenizer, token files, training, validation.

    python text_to_gpt.py [TEXT...]       texts to learn from; default: the licenses of Debian
    python text_to_gpt.py --steps 500

Needs torch and tokenizers. Texts may have any size: the tokenizer is trained on a part of them,
`evenkeel.tokenize` makes token files on all cores, and batches are read within a budget.
"""

import argparse
import sys
import tempfile
from itertools import islice
from pathlib import Path

import evenkeel
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from train_gpt import BATCH, GPT, T, texts_found


def train_tokenizer(texts, size):
    """A byte-level BPE, as GPT-2's, of the first MiB of each text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((open(t, errors="replace").read(1 << 20) for t in texts), trainer)
    return tokenizer


@torch.no_grad()
def validation_loss(model, tokens):
    starts = torch.arange(0, len(tokens) - T, T)[:200]
    return model(*tokens.xy(starts, T)).item()


def main():
    options = argparse.ArgumentParser(description="Raw text to a trained small GPT.")
    options.add_argument("texts", nargs="*", type=Path, metavar="TEXT")
    options.add_argument("--steps", type=int, default=200)
    options.add_argument("--vocabulary", type=int, default=512)
    told = options.parse_args()
    torch.manual_seed(1337)
    torch.set_num_threads(1)  # such a small model gains nothing from more
    with tempfile.TemporaryDirectory() as folder:
        texts = told.texts or texts_found()
        tokenizer = train_tokenizer(texts, told.vocabulary)
        made = evenkeel.tokenize(
            texts,
            f"{folder}/train.bin",  # and val.bin
            tokenizer,
            input_format="text",
            separator="\n",  # a line is a document
            val_share=0.1,
        )
        print(f"{made['documents']:,} documents, {made['tokens']:,} tokens")
        train = evenkeel.tokens(f"{folder}/train.bin", budget="16MiB")
        val = evenkeel.tokens(f"{folder}/val.bin", budget="16MiB")
        model = GPT(tokenizer.get_vocab_size())
        optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
        first = validation_loss(model, val)
        with evenkeel.TokenLoader(train, BATCH, T, seed=1337, device="cpu") as loader:
            for x, y in islice(loader, told.steps):
                optimizer.zero_grad()
                model(x, y).backward()
                optimizer.step()
        last = validation_loss(model, val)
    print(f"the validation loss went from {first:.3f} to {last:.3f}")
    return 0 if last < 0.9 * first else 1


if __name__ == "__main__":
    sys.exit(main())
