# SPDX-License-Identifier: MIT
"""bench/torch/compare.py OUT [ROUNDS [STEPS [WIDTH [LAYERS]]]]: train.py as it is, and with one
import changed, in turns. Says what both cost, and whether the losses agree; leaves OUT.

Environment: PYTHONPATH and CZERO_LIBRARY, where the package is not installed.
"""
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
BEFORE = "from torch.distributed.optim import ZeroRedundancyOptimizer\n"
AFTER = "from czero.torch import ZeroRedundancyOptimizer\n"


def run(script, arguments):
    # A heap that keeps its memory: the best for both.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(1 << 32),
                   "MALLOC_TRIM_THRESHOLD_": str(1 << 40), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run([sys.executable, script, *arguments], stdout=subprocess.PIPE, text=True,
                          env=environment, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    out, rounds, arguments = sys.argv[1], int((sys.argv[2:3] or ["3"])[0]), sys.argv[3:]
    text = (HERE / "train.py").read_text()
    assert text.count(BEFORE) == 1
    found = {"before": [], "after": []}
    with tempfile.TemporaryDirectory() as folder:
        after = pathlib.Path(folder, "train.py")
        after.write_text(text.replace(BEFORE, AFTER))
        for _ in range(rounds):
            found["before"].append(run(HERE / "train.py", arguments))
            found["after"].append(run(after, arguments))
    first = found["before"][0]
    print(f"PyTorch {first['torch']}, {first['parameters'] / 1e6:.1f} million parameters, 2 ranks, "
          f"{os.cpu_count()} processors: medians of {rounds} rounds in turns")
    print(f"{'':24}{'PyTorch':>12}{'czero':>12}{'times':>8}")
    rows = {}
    for name, words in (("step", "optimizer.step()"), ("whole", "iteration"),
                        ("consolidate", "consolidate_state_dict()")):
        each = {}
        for kind, runs in found.items():
            each[kind] = [statistics.median(one[name][2:]) if name != "consolidate" else one[name]
                          for one in runs]
        times = statistics.median(a / b for a, b in zip(each["before"], each["after"]))
        before, after = (statistics.median(each[kind]) for kind in ("before", "after"))
        rows[name] = {"before": before, "after": after, "times": times}
        print(f"{words:24}{before * 1e3:9.2f} ms{after * 1e3:9.2f} ms{times:8.2f}")
    pairs = list(zip(first["losses"], found["after"][0]["losses"]))
    worst = max(abs(a - b) / max(abs(a), 1e-3) for a, b in pairs)
    print(f"losses of rank 0: {pairs[0][0]:.6f} to {pairs[-1][0]:.6f}, and {pairs[0][1]:.6f} to "
          f"{pairs[-1][1]:.6f}; they differ by {worst:.1e} at most")
    pathlib.Path(out).write_text(json.dumps({"torch": first["torch"], "rows": rows,
                                             "losses_differ": worst}, indent=1) + "\n")
    return worst > 1e-2


if __name__ == "__main__":
    sys.exit(main())
