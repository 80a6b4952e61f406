# SPDX-License-Identifier: MIT
"""PyTorch's DDP and ZeroRedundancyOptimizer over GPT-2 124M's 148 tensors, without a model: an autograd function hands
out gradients that are there, one for each parameter, so that buckets are reduced as in a backward pass.

    zero_step.py RANKS [view]     view: parameters_as_bucket_view"""
import sys

import torch
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

import ranks
from turns import GPT2


class HandOut(torch.autograd.Function):
    @staticmethod
    def forward(ctx, parameter, gradient):
        ctx.gradient = gradient
        return parameter.new_zeros(())

    @staticmethod
    def backward(ctx, _):
        return ctx.gradient, None


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.parameters_ = torch.nn.ParameterList([torch.nn.Parameter(torch.full(shape, 1e-2)) for shape in GPT2])
        self.gradients = [torch.full(shape, 1e-4) for shape in GPT2]

    def forward(self):
        return sum(HandOut.apply(p, g) for p, g in zip(self.parameters_, self.gradients))


class Step:
    def __init__(self, view):
        self.model = DistributedDataParallel(Model(), gradient_as_bucket_view=True)
        self.optimizer = ZeroRedundancyOptimizer(self.model.parameters(), torch.optim.AdamW, lr=1e-4,
                                                 weight_decay=0.01, parameters_as_bucket_view=view)

    def prepare(self):
        self.optimizer.zero_grad(set_to_none=True)

    def __call__(self):
        self.model().backward()
        self.optimizer.step()


if __name__ == "__main__":
    ranks.run(int(sys.argv[1]), Step, "view" in sys.argv[2:])
