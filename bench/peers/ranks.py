# SPDX-License-Identifier: MIT
"""Ranks of PyTorch on gloo, each a process with one thread on a processor of its own; rank 0 is the program itself."""
import os
import socket
import sys
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read when it is loaded; torch sets only its own threads

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from turns import serve


def join(rank, ranks, port):
    torch.set_num_threads(1)
    cpus = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {cpus[rank % len(cpus)]})
    dist.init_process_group("gloo", rank=rank, world_size=ranks, init_method=f"tcp://127.0.0.1:{port}")


def follow(rank, ranks, port, make, arguments):
    join(rank, ranks, port)
    step, go = make(*arguments), torch.zeros(1)
    while True:
        dist.broadcast(go, 0)  # asleep until rank 0 is asked for a step
        if go.item() == 0:
            return
        timed(step)


def timed(step):
    """From when all have come until all have gone. step.prepare() is not counted."""
    prepare = getattr(step, "prepare", None)
    if prepare:
        prepare()
    dist.barrier()
    start = time.perf_counter()
    step()
    dist.barrier()
    return time.perf_counter() - start


def run(ranks, make, *arguments):
    """make(*arguments) -> the step, on every rank; a step for each line on standard input."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    context = mp.get_context("spawn")
    others = [context.Process(target=follow, args=(rank, ranks, port, make, arguments)) for rank in range(1, ranks)]
    for process in others:
        process.start()
    join(0, ranks, port)
    step = make(*arguments)

    def turn():
        dist.broadcast(torch.ones(1), 0)
        return timed(step)

    serve(turn)
    dist.broadcast(torch.zeros(1), 0)
    for process in others:
        process.join()
    sys.stdout.flush()
    os._exit(0)
