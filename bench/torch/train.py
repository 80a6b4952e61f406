# SPDX-License-Identifier: MIT
"""A training with PyTorch's DDP and ZeroRedundancyOptimizer, as a user has it: AdamW, a schedule,
and a checkpoint. bench/torch/compare.py runs it as it is, and with its one import changed.

    train.py [STEPS [WIDTH [LAYERS]]]

Prints, as JSON, the losses, and in seconds: each iteration, the part of it in the optimizer's step
(on the rank that takes longest), and the consolidation of the state.
"""
import json
import os
import socket
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

RANKS = 2


def network(width, layers):
    stack = []
    for _ in range(layers):
        stack += [torch.nn.Linear(width, width), torch.nn.GELU(), torch.nn.LayerNorm(width)]
    return torch.nn.Sequential(*stack, torch.nn.Linear(width, 1))


def train(rank, port, steps, width, layers):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(max(os.cpu_count() // RANKS, 1))
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    torch.manual_seed(0)
    model = DistributedDataParallel(network(width, layers))
    fused = {"fused": True} if torch.__version__ >= "2.4" else {}
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-3, **fused)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 10, 0.5)
    torch.manual_seed(1 + rank)
    losses, whole, step = [], [], []
    for _ in range(steps):
        inputs = torch.randn(16, width)
        dist.barrier()
        begin = time.perf_counter()
        loss = (model(inputs) - inputs[:, :1].sin()).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        dist.barrier()  # so that a rank that is late counts for the pass
        middle = time.perf_counter()
        optimizer.step()
        step.append(time.perf_counter() - middle)
        dist.barrier()
        whole.append(time.perf_counter() - begin)
        schedule.step()
        losses.append(loss.item())
    slowest = torch.tensor(step, dtype=torch.float64)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    begin = time.perf_counter()
    optimizer.consolidate_state_dict(to=0)
    consolidated = time.perf_counter() - begin
    if rank == 0:
        with tempfile.TemporaryFile() as file:
            torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict()},
                       file)
        print(json.dumps({"torch": torch.__version__, "losses": losses, "whole": whole,
                          "step": slowest.tolist(), "consolidate": consolidated,
                          "parameters": sum(one.numel() for one in model.parameters())}))
    dist.barrier()


if __name__ == "__main__":
    given = [int(one) for one in sys.argv[1:]] + [20, 1024, 8][len(sys.argv) - 1:]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    mp.spawn(train, (port, *given), RANKS)
