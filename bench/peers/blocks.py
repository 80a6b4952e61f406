# SPDX-License-Identifier: MIT
"""A step of AdamW with moments in 8 bits by czero, beside what bitsandbytes' step does at least: its library's kernels for
the CPU, which make f32 of both moments and codes again. In turns, on one thread each; medians of nanoseconds an element.

    blocks.py LIBRARY [MEGAELEMENTS]     LIBRARY: libbitsandbytes_cpu.so of its wheel (pip download bitsandbytes)"""
import ctypes
import os
import statistics
import sys
import time

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np

import czero

ROUNDS, BLOCK = 11, 256


def dynamic_map(signed):
    """The values of the paper's data type, in order."""
    values = [0.0, 1.0]
    for i in range(7):
        edges = np.linspace(0.1, 1, (2**i if signed else 2 ** (i + 1)) + 1)
        middles = (edges[:-1] + edges[1:]) / 2 * 10.0 ** (i - 6)
        values += list(middles) + (list(-middles) if signed else [])
    return np.sort(np.array(values, dtype=np.float32))


def pointer(array):
    return ctypes.c_void_p(array.ctypes.data)


class Theirs:
    def __init__(self, path, count):
        self.lib, self.count = ctypes.CDLL(path), count
        noise = np.random.default_rng(1).standard_normal(count).astype(np.float32)
        self.moments = []
        for signed in True, False:
            values = noise * 1e-3 if signed else noise * noise * 1e-6
            self.moments.append((dynamic_map(signed), values, np.empty(-(-count // BLOCK), np.float32),
                                 np.empty(count, np.uint8)))
            self._pack(*self.moments[-1])

    def _call(self, function, *arrays):
        function(*map(pointer, arrays), ctypes.c_longlong(BLOCK), ctypes.c_longlong(self.count))

    def _pack(self, code, values, absmax, codes):
        self._call(self.lib.cquantize_blockwise_cpu_fp32, code, values, absmax, codes)

    def step(self):
        for code, values, absmax, codes in self.moments:
            self._call(self.lib.cdequantize_blockwise_cpu_fp32, code, codes, absmax, values)
        for moment in self.moments:
            self._pack(*moment)


class Ours:
    def __init__(self, count, state):
        rng = np.random.default_rng(2)
        self.model = czero.Model()
        self.values = rng.standard_normal(count).astype(np.float32)
        self.gradients = (rng.standard_normal(count) * 1e-3).astype(np.float32)
        self.model.add("w", self.values, self.gradients)
        self.optim = czero.Optim(self.model, "adamw", lr=1e-4, threads=1, state_dtype=state)

    def step(self):
        self.optim.step()


def main(library, mega=4):
    count = int(float(mega) * 2**20)
    sides = {"bitsandbytes' kernels": Theirs(library, count), "czero's step, 8 bits": Ours(count, "u8"),
             "czero's step, f32": Ours(count, "f32")}
    times = {name: [] for name in sides}
    for _ in range(ROUNDS):
        for name, side in sides.items():
            start = time.perf_counter()
            side.step()
            times[name].append((time.perf_counter() - start) / count * 1e9)
    medians = {name: statistics.median(one) for name, one in times.items()}
    for name, median in medians.items():
        print(f"{name:24} {median:7.3f} ns an element")
    theirs, ours, _ = medians.values()
    print(f"theirs / ours            {theirs / ours:7.2f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
