"""A minimal GPT-2 in PyTorch: 124 million weights with the default sizes.

There is no dropout and no bias in the norms, as is usual today for training from scratch. The token
embedding is also the head. bench/gpu_train.py trains this model.
"""

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass
class Sizes:
    vocabulary: int = 50304  # 50,257, rounded up to a multiple of 64
    length: int = 1024
    width: int = 768
    heads: int = 12
    layers: int = 12


class Block(nn.Module):
    """Causal self-attention, then a two-layer MLP at each position."""

    def __init__(self, sizes):
        super().__init__()
        width, self.heads = sizes.width, sizes.heads
        self.before_attention = nn.LayerNorm(width, bias=False)
        self.query_key_value = nn.Linear(width, 3 * width, bias=False)
        self.together = nn.Linear(width, width, bias=False)
        self.before_layers = nn.LayerNorm(width, bias=False)
        self.wider = nn.Linear(width, 4 * width, bias=False)
        self.narrower = nn.Linear(4 * width, width, bias=False)

    def forward(self, x):
        batch, length, width = x.shape
        parts = self.query_key_value(self.before_attention(x)).split(width, dim=2)
        query, key, value = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in parts
        )
        seen = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.together(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.narrower(F.gelu(self.wider(self.before_layers(x)), approximate="tanh"))


class GPT2(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        self.token = nn.Embedding(sizes.vocabulary, sizes.width)
        self.place = nn.Embedding(sizes.length, sizes.width)
        self.blocks = nn.ModuleList(Block(sizes) for _ in range(sizes.layers))
        self.last = nn.LayerNorm(sizes.width, bias=False)
        self.head = nn.Linear(sizes.width, sizes.vocabulary, bias=False)
        self.head.weight = self.token.weight
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                # Layers that add to the residual stream begin with smaller weights.
                added = name.endswith(("together.weight", "narrower.weight"))
                nn.init.normal_(weight, std=0.02 / (math.sqrt(2 * sizes.layers) if added else 1))

    def forward(self, x, y):
        """The mean loss of predicting y."""
        hidden = self.token(x) + self.place(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            hidden = block(hidden)
        logits = self.head(self.last(hidden))
        return F.cross_entropy(logits.flatten(0, 1), y.flatten())
