# SPDX-License-Identifier: MIT
"""PyTorch's DDP and ZeroRedundancyOptimizer on the model of examples/12_gpt: pre-norm blocks with biases, GELU, a head
that shares the token embedding, f32, AdamW. A training step for each line.

    train.py RANKS [LAYERS HEADS CHANNELS BLOCK VOCABULARY BATCH]     batch: of each rank"""
import math
import sys

import torch
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

import ranks


class Block(nn.Module):
    def __init__(self, channels, heads, block):
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(channels), nn.LayerNorm(channels)
        self.c_attn, self.c_proj = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)
        self.c_fc, self.m_proj = nn.Linear(channels, 4 * channels), nn.Linear(4 * channels, channels)
        self.register_buffer("mask", torch.full((block, block), float("-inf")).triu(1), persistent=False)

    def attend(self, x):
        batch, length, channels = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2)
                   for part in self.c_attn(x).split(channels, 2))
        if hasattr(F, "scaled_dot_product_attention"):
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[3]) + self.mask
            y = scores.softmax(3) @ v
        return self.c_proj(y.transpose(1, 2).reshape(batch, length, channels))

    def forward(self, x):
        x = x + self.attend(self.ln_1(x))
        return x + self.m_proj(F.gelu(self.c_fc(self.ln_2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, layers, heads, channels, block, vocabulary):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, channels), nn.Embedding(block, channels)
        self.blocks = nn.ModuleList([Block(channels, heads, block) for _ in range(layers)])
        self.ln_f = nn.LayerNorm(channels)

    def forward(self, tokens, targets):
        x = self.wte(tokens) + self.wpe.weight[: tokens.shape[1]]
        for block in self.blocks:
            x = block(x)
        logits = self.ln_f(x) @ self.wte.weight.t()
        return F.cross_entropy(logits.view(-1, logits.shape[2]), targets.reshape(-1))


class Step:
    def __init__(self, layers, heads, channels, block, vocabulary, batch):
        torch.manual_seed(0)
        self.model = DistributedDataParallel(GPT(layers, heads, channels, block, vocabulary),
                                             gradient_as_bucket_view=True)
        self.optimizer = ZeroRedundancyOptimizer(self.model.parameters(), torch.optim.AdamW, lr=1e-3,
                                                 parameters_as_bucket_view=True)
        self.tokens = torch.randint(vocabulary, (batch, block + 1))

    def __call__(self):
        self.optimizer.zero_grad(set_to_none=True)
        self.model(self.tokens[:, :-1], self.tokens[:, 1:]).backward()
        self.optimizer.step()


if __name__ == "__main__":
    sizes = [int(word) for word in sys.argv[2:8]] or [6, 6, 384, 256, 256, 4]
    ranks.run(int(sys.argv[1]), Step, *sizes)
