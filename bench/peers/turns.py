# SPDX-License-Identifier: MIT
"""Programs that take turns. A program that takes part reads a line, does its work once, prints the seconds that it
took, and sleeps meanwhile: so rounds alternate, and what else the machine does hits all of them."""
import json
import os
import statistics
import subprocess
import sys
import time

# glibc keeps what is freed, on large pages: 1.8 to 2.4 times the speed for PyTorch's optimizers where pages are dear.
HEAP_KEPT = ("glibc.malloc.hugetlb=1:glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=30000000000:"
             "glibc.malloc.top_pad=67108864")

IN_LAYER = [(768,), (768,), (2304, 768), (2304,), (768, 768), (768,), (768,), (768,), (3072, 768), (3072,),
            (768, 3072), (768,)]
GPT2 = [(50257, 768), (1024, 768)] + 12 * IN_LAYER + [(768,), (768,)]  # 148 tensors, 124,439,808 elements


def serve(work):
    """The peers' side: work() -> seconds, for each line that comes."""
    for _ in sys.stdin:
        print(f"{work():.6f}", flush=True)


class Program:
    def __init__(self, name, command, heap_kept=False):
        self.name = name
        environment = dict(os.environ)
        environment.pop("CZ_BENCH_RESULTS", None)
        if heap_kept:
            environment["GLIBC_TUNABLES"] = HEAP_KEPT
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                        env=environment)
        self.seconds = []

    def turn(self):
        """Twice, of which the second counts: memory that was idle may have to come back first."""
        self.once()
        return self.once()

    def once(self):
        try:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise RuntimeError(f"{self.name} ended: status {self.process.wait()}")
        return float(line)

    def close(self):
        """Some of PyTorch's ranks abort when they end with the heap kept: that is not what is measured."""
        try:
            self.process.stdin.close()
            self.process.wait(30)
        except (BrokenPipeError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()


class Table:
    """Lines for people, and rows like those of make bench: ours, limit (the peer), ratio (how many times faster)."""

    def __init__(self):
        self.rows = []

    def add(self, name, ours, theirs, against, size=0, ranks=1):
        ratios = sorted(b / a for a, b in zip(ours, theirs))
        ratio = statistics.median(ratios)
        spread = ratios[len(ratios) * 3 // 4] - ratios[len(ratios) // 4]
        mine, other = statistics.median(ours), statistics.median(theirs)
        print(f"  {name:34s} czero {mine:9.4f} s   {other:9.4f} s {against:38s} {ratio:6.1f} x  (spread {spread:.1f})",
              flush=True)
        self.rows.append({"name": name, "bytes": size, "ranks": ranks, "ours": mine, "limit": other,
                          "ratio": round(ratio, 3), "spread": round(spread, 3), "against": against})

    def write(self, path):
        with open(path, "w", encoding="utf-8") as file:
            file.write('{"results": [\n' + ",\n".join(json.dumps(row) for row in self.rows) + "\n]}\n")


def take_turns(programs, rounds, seconds=30):
    """Every program once in each round; the first round only warms up. On a machine that is busy otherwise it ends when
    the seconds are over, and two rounds were made."""
    end = time.monotonic() + seconds
    try:
        for turn in range(-1, rounds):
            if turn > 1 and time.monotonic() > end:
                break
            for program in programs if turn % 2 else reversed(programs):
                seconds = program.turn()
                if turn >= 0:
                    program.seconds.append(seconds)
    finally:
        for program in programs:
            program.close()


def gib_free():
    with open("/proc/meminfo", encoding="ascii") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) / (1 << 20)
    return 0
