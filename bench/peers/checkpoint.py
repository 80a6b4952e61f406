# SPDX-License-Identifier: MIT
"""PyTorch's way to the same checkpoint: AdamW in ZeroRedundancyOptimizer over parameters like GPT-2 124M's, gloo,
consolidate_state_dict on rank 0, torch.save of model and optimizer there, fsync. A barrier before and after.

    checkpoint.py FOLDER [RANKS [ROUNDS]]     prints the seconds of each round"""
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.optim import ZeroRedundancyOptimizer

IN_LAYER = [768, 768, 2304, 1769472, 768, 589824, 768, 768, 3072, 2359296, 768, 2359296]
SIZES = [38597376, 786432] + 12 * IN_LAYER + [768, 768]


def run(rank, ranks, folder, rounds):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=ranks, init_method=f"file://{folder}/peer-store")
    parameters = [torch.nn.Parameter(torch.ones(size)) for size in SIZES]
    optimizer = ZeroRedundancyOptimizer(parameters, torch.optim.AdamW)
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    path = os.path.join(folder, "peer.pt")
    for _ in range(rounds):
        dist.barrier()
        start = time.monotonic()
        optimizer.consolidate_state_dict(to=0)
        gathered = time.monotonic()
        if rank == 0:
            model = {f"p{i}": parameter.data for i, parameter in enumerate(parameters)}
            with open(path, "wb") as file:
                torch.save({"model": model, "optimizer": optimizer.state_dict()}, file)
                file.flush()
                os.fsync(file.fileno())
        dist.barrier()
        end = time.monotonic()
        if rank == 0:
            print(f"{end - start:.3f} {gathered - start:.3f} {os.path.getsize(path)}", flush=True)
            os.unlink(path)


if __name__ == "__main__":
    folder = sys.argv[1]
    ranks = int(sys.argv[2]) if len(sys.argv) > 2 else 2
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    mp.spawn(run, args=(ranks, folder, rounds), nprocs=ranks)
