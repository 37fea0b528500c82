"""Raw text to a trained small GPT, in one script: tokenizer, token files, training, validation.

    python text_to_gpt.py [TEXT...]       texts to learn from; default: the licenses of Debian

Needs torch and tokenizers. Texts may have any size: memory stays within a budget.
"""

import argparse
import tempfile
from itertools import islice
from pathlib import Path

import evenkeel
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from torch import nn

BATCH, T, WIDTH, HEADS, LAYERS = 12, 64, 64, 4, 2


class GPT(nn.Module):
    def __init__(self, vocabulary):
        super().__init__()
        self.token, self.place = nn.Embedding(vocabulary, WIDTH), nn.Embedding(T, WIDTH)
        block = nn.TransformerEncoderLayer(
            WIDTH, HEADS, 4 * WIDTH, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(block, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, vocabulary, bias=False)

    def forward(self, x, y):
        later = nn.Transformer.generate_square_subsequent_mask(T)  # a token sees those before it
        seen = self.blocks(self.token(x) + self.place.weight, later, is_causal=True)
        return nn.functional.cross_entropy(self.head(seen).flatten(0, 1), y.flatten())


def train_tokenizer(texts, size):
    tokenizer = Tokenizer(models.BPE())  # of bytes, as GPT-2's
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    letters, ends = pre_tokenizers.ByteLevel.alphabet(), ["<|endoftext|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=ends, initial_alphabet=letters, show_progress=False
    )
    tokenizer.train_from_iterator((open(t, errors="replace").read(1 << 20) for t in texts), trainer)
    return tokenizer


def main():
    options = argparse.ArgumentParser(description="Raw text to a trained small GPT.")
    options.add_argument("texts", nargs="*", type=Path, metavar="TEXT")
    options.add_argument("--steps", type=int, default=200)
    options.add_argument("--vocabulary", type=int, default=512)
    args = options.parse_args()
    torch.manual_seed(1337)
    torch.set_num_threads(1)  # such a small model gains nothing from more
    texts = args.texts or [*Path("/usr/share/common-licenses").glob("*[0-9]")] or [Path(__file__)]
    tokenizer = train_tokenizer(texts, args.vocabulary)
    model = GPT(tokenizer.get_vocab_size())
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3)
    lines = {"input_format": "text", "separator": "\n"}  # a line is a document
    with tempfile.TemporaryDirectory() as folder:
        paths = [f"{folder}/train.bin", f"{folder}/val.bin"]
        made = evenkeel.tokenize(texts, paths[0], tokenizer, val_share=0.1, **lines)
        print(f"{made['documents']:,} documents, {made['tokens']:,} tokens")
        tokens, rest = (evenkeel.tokens(path, budget="16MiB") for path in paths)
        held_out = rest.xy(torch.arange(0, len(rest) - T, T)[:200], T)
        first = model(*held_out).item()
        with evenkeel.TokenLoader(tokens, BATCH, T, seed=1337, device="cpu") as loader:
            for x, y in islice(loader, args.steps):
                optimizer.zero_grad()
                model(x, y).backward()
                optimizer.step()
        last = model(*held_out).item()
    print(f"the validation loss went from {first:.3f} to {last:.3f}")
    return 0 if last < 0.9 * first else 1


if __name__ == "__main__":
    raise SystemExit(main())
