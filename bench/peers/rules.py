# SPDX-License-Identifier: MIT
"""PyTorch's optimizer step over GPT-2 124M's 148 tensors: rules.py adamw|adam|sgd THREADS, a step for each line. Or
over the matrices of one of its layers: rules.py muon THREADS."""
import sys
import time

import torch

from turns import GPT2, IN_LAYER, serve

RULES = {"adamw": lambda p: torch.optim.AdamW(p, lr=1e-4),
         "adam": lambda p: torch.optim.Adam(p, lr=1e-4),
         "sgd": lambda p: torch.optim.SGD(p, lr=1e-4, momentum=0.9),
         "muon": lambda p: torch.optim.Muon(p)}


def main():
    torch.set_num_threads(int(sys.argv[2]))
    is_muon = sys.argv[1] == "muon"
    shapes = [shape for shape in IN_LAYER if len(shape) == 2] if is_muon else GPT2
    parameters = [torch.nn.Parameter(torch.full(shape, 1e-2)) for shape in shapes]
    for parameter in parameters:
        parameter.grad = torch.randn_like(parameter) if is_muon else torch.full_like(parameter, 1e-4)
    optimizer = RULES[sys.argv[1]](parameters)

    def step():
        start = time.perf_counter()
        optimizer.step()
        return time.perf_counter() - start

    serve(step)


if __name__ == "__main__":
    main()
