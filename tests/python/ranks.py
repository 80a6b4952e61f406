# SPDX-License-Identifier: MIT
"""Processes with a process group of PyTorch's, which run one function after the other."""
import multiprocessing
import os
import socket
import time
import traceback


class Ranks:
    """`size` processes; forked, since importing PyTorch takes longer than a test."""

    def __init__(self, size):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        context = multiprocessing.get_context("fork")
        self.pipes, self.processes = [], []
        for rank in range(size):
            here, there = context.Pipe()
            process = context.Process(target=_serve, args=(there, rank, size, port), daemon=True)
            process.start()
            there.close()
            self.pipes.append(here)
            self.processes.append(process)

    def run(self, function, *arguments, seconds=120):
        """Call ``function(rank, size, *arguments)`` on all ranks; return what they return."""
        for pipe in self.pipes:
            pipe.send((function.__name__, arguments))
        results, end = [], time.monotonic() + seconds
        for rank, pipe in enumerate(self.pipes):
            text = f"it does not come back from {function.__name__}"
            here = pipe.poll(max(end - time.monotonic(), 0))
            results.append(pipe.recv() if here else (text, None))
            if results[-1][0]:
                end = min(end, time.monotonic() + 20)  # others may wait for it
        failed = [f"rank {rank}:\n{text}" for rank, (text, _) in enumerate(results) if text]
        if failed:
            raise AssertionError("\n".join(failed))
        return [value for _, value in results]

    def end(self):
        for pipe in self.pipes:
            pipe.send(None)
        for process in self.processes:
            process.join(20)
            assert process.exitcode == 0, f"a rank ended with {process.exitcode}"


def _serve(pipe, rank, size, port):
    import __main__
    import torch
    import torch.distributed as dist
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), CZERO_TIMEOUT="100")
    dist.init_process_group("gloo", rank=rank, world_size=size)
    while (given := pipe.recv()) is not None:
        name, arguments = given
        torch.manual_seed(0)
        try:
            pipe.send((None, getattr(__main__, name)(rank, size, *arguments)))
        except BaseException:
            pipe.send((traceback.format_exc(), None))
    dist.barrier()
