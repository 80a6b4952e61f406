# SPDX-License-Identifier: MIT
"""PyTorch's optimizer step over GPT-2 124M's 148 tensors: rules.py adamw|adam|sgd THREADS, a step for each line."""
import sys
import time

import torch

from turns import GPT2, serve

RULES = {"adamw": lambda p: torch.optim.AdamW(p, lr=1e-4),
         "adam": lambda p: torch.optim.Adam(p, lr=1e-4),
         "sgd": lambda p: torch.optim.SGD(p, lr=1e-4, momentum=0.9)}


def main():
    torch.set_num_threads(int(sys.argv[2]))
    parameters = [torch.nn.Parameter(torch.full(shape, 1e-2)) for shape in GPT2]
    for parameter in parameters:
        parameter.grad = torch.full_like(parameter, 1e-4)
    optimizer = RULES[sys.argv[1]](parameters)

    def step():
        start = time.perf_counter()
        optimizer.step()
        return time.perf_counter() - start

    serve(step)


if __name__ == "__main__":
    main()
