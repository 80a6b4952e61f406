# SPDX-License-Identifier: MIT
"""bench/torch/host.py OUT [ROUNDS [MILLIONS [THREADS]]]: a step of AdamW over bfloat16 values and
gradients with masters and moments in f32, in the host's memory: HostOptimizer, and by hand
PyTorch's fused AdamW and DeepSpeed's CPUAdam (where it is installed) over f32 masters, beside a
plain mix of the same reads and writes. In turns, in one process; ratios are medians of those of the
rounds. Then the same elements dealt out to 8 processes. Leaves OUT.

By hand means what trainers do: gradients are widened into those of the masters, the optimizer
steps, masters are narrowed into the values.
"""
import json
import math
import os
import pathlib
import socket
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from czero.torch import HostOptimizer

RANKS = 8
LR = 1e-4


def shapes(elements):
    """Matrices of a transformer's layers, and some vectors, until there are as many."""
    found, width = [], 1024
    while elements > 0:
        for shape in ((4 * width, width), (width,), (width, width), (width,)):
            found.append(shape)
            elements -= math.prod(shape)
    return found


def make(elements):
    torch.manual_seed(0)
    values = [torch.randn(shape).bfloat16().requires_grad_() for shape in shapes(elements)]
    return values, [torch.randn_like(value) * 1e-3 for value in values]


class Host:
    """All gradients are there when the step begins."""

    def __init__(self, values, gradients, threads, max_norm=None):
        self.values = [value.detach().clone().requires_grad_() for value in values]
        self.gradients = gradients
        self.optimizer = HostOptimizer(self.values, "adamw", lr=LR, threads=threads,
                                       max_norm=max_norm, overlap=False)

    def __call__(self):
        for value, gradient in zip(self.values, self.gradients):
            value.grad = gradient
        self.optimizer.step()


class Backward:
    """They come one after the other, out of a pass that takes `seconds` and needs no core; what is
    timed is the step that follows."""

    def __init__(self, values, gradients, threads, max_norm, seconds):
        self.values = [value.detach().clone().requires_grad_() for value in values]
        self.gradients = gradients
        self.optimizer = HostOptimizer(self.values, "adamw", lr=LR, threads=threads,
                                       max_norm=max_norm)
        self.seconds = seconds

    def prepare(self):
        total = sum(value.numel() for value in self.values)
        begin = time.perf_counter()
        done = 0
        for value, gradient in zip(self.values, self.gradients):
            done += value.numel()
            time.sleep(max(begin + self.seconds * done / total - time.perf_counter(), 0))
            value.grad = gradient
            self.optimizer._arrived(value)

    def __call__(self):
        self.optimizer.step()


class ByHand:
    def __init__(self, values, gradients, make_optimizer):
        self.values, self.gradients = [v.detach().clone() for v in values], gradients
        self.masters = [value.float().requires_grad_() for value in self.values]
        for master in self.masters:
            master.grad = torch.zeros_like(master)
        self.optimizer = make_optimizer(self.masters)

    def __call__(self):
        with torch.no_grad():
            torch._foreach_copy_([master.grad for master in self.masters], self.gradients)
            self.optimizer.step()
            torch._foreach_copy_(self.values, self.masters)


class Mix:
    """30 bytes an element: a gradient is read; a value, a master and two moments read and written.
    """

    def __init__(self, values, gradients):
        self.state = [torch.zeros(value.numel() * 3, dtype=torch.int32) for value in values]
        self.values = [value.detach().clone().view(torch.int16) for value in values]
        self.gradients = [gradient.view(torch.int16) for gradient in gradients]

    def __call__(self):
        for state, value, gradient in zip(self.state, self.values, self.gradients):
            state.add_(1)
            value.add_(gradient)


def deepspeed_adam():
    try:
        from deepspeed.ops.adam import DeepSpeedCPUAdam
        DeepSpeedCPUAdam([torch.zeros(8, requires_grad=True)])
        return lambda masters: DeepSpeedCPUAdam(masters, lr=LR, weight_decay=1e-2,
                                                adamw_mode=True)
    except Exception as error:
        print(f"DeepSpeed's CPUAdam cannot be had: {type(error).__name__}: {error}"[:200])
        return None


def measure(run):
    if hasattr(run, "prepare"):
        run.prepare()
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def on_rank(rank, port, elements, rounds, results):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    values, gradients = make(elements // RANKS)
    optimizer = HostOptimizer(values, "adamw", lr=LR, threads=1, overlap=False, max_norm=math.inf,
                              group=dist.group.WORLD)
    for number in range(rounds + 2):
        for value, gradient in zip(values, gradients):
            value.grad = gradient
        times = []
        for step in (lambda: None, optimizer.step):  # what it takes to meet, alone
            dist.barrier()
            begin = time.perf_counter()
            step()
            dist.barrier()
            times.append(time.perf_counter() - begin)
        if rank == 0 and number > 1:
            results.put(times[1] - times[0])
    dist.barrier()


def main():
    out = sys.argv[1]
    if not hasattr(torch, "_foreach_copy_"):
        print(f"skipped: PyTorch {torch.__version__} has no fused AdamW on the CPU")
        return
    given = [int(one) for one in sys.argv[2:]]
    rounds, millions, threads = given + [9, 24, os.cpu_count()][len(given):]
    torch.set_num_threads(threads)
    elements = millions * 1_000_000
    values, gradients = make(elements)
    elements = sum(value.numel() for value in values)
    large = 1e6
    runs = {"mix": Mix(values, gradients), "host": Host(values, gradients, threads),
            "host, max_norm": Host(values, gradients, threads, large),
            "fused": ByHand(values, gradients, lambda masters: torch.optim.AdamW(
                masters, lr=LR, weight_decay=1e-2, fused=True))}
    if (deepspeed := deepspeed_adam()) is not None:
        runs["deepspeed"] = ByHand(values, gradients, deepspeed)
    for run in list(runs.values()):
        measure(run)
    seconds = 4 * measure(runs["host"])
    runs["host, after a pass"] = Backward(values, gradients, threads, None, seconds)
    runs["host, max_norm, after a pass"] = Backward(values, gradients, threads, large, seconds)
    for _ in range(4):  # until pages are there
        for run in runs.values():
            measure(run)
    found = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            found[name].append(measure(run))
    print(f"PyTorch {torch.__version__}, {elements / 1e6:.1f} million elements, {threads} threads, "
          f"medians of {rounds} rounds in turns; a pass takes {seconds * 1e3:.0f} ms")
    rows = {}
    for name, times in found.items():
        ratio = statistics.median(a / b for a, b in zip(times, found["mix"]))
        rows[name] = {"seconds": statistics.median(times), "mixes": ratio}
        print(f"{name:32}{rows[name]['seconds'] * 1e3:9.2f} ms   {ratio:5.2f} of the mix")
    ratios = {"fused / host": ("fused", "host", 0), "deepspeed / host": ("deepspeed", "host", 0),
              "max_norm / none": ("host, max_norm", "host", 0),
              "passes and steps, max_norm / none": ("host, max_norm, after a pass",
                                                    "host, after a pass", seconds)}
    for name, (one, other, both) in ratios.items():
        if one in found:
            rows[name] = statistics.median((a + both) / (b + both)
                                           for a, b in zip(found[one], found[other]))
            print(f"{name:34}{rows[name]:7.2f}")
    alone, together = [], []
    one = Host(values, gradients, threads, math.inf)
    results = mp.get_context("spawn").Queue()
    for _ in range(2):
        alone += [measure(one) for _ in range(rounds)][1:]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        mp.spawn(on_rank, (port, elements, rounds, results), RANKS)
        together += [results.get() for _ in range(rounds)]
    rows["processes"] = statistics.median(together) / statistics.median(alone)
    print(f"{f'{RANKS} processes together / one':34}{rows['processes']:7.2f}")
    pathlib.Path(out).write_text(json.dumps({"torch": torch.__version__, "elements": elements,
                                             "threads": threads, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
