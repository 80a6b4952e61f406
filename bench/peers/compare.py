# SPDX-License-Identifier: MIT
"""The same work by PyTorch and by czero, in turns: compare.py BUILD OUT [--quick] [PART…] with parts rules, muon, zero, train.
scripts/bench-peers.sh calls it with mpirun's command in MPIRUN. Writes OUT/peers.json."""
import json
import os
import random
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

from turns import Program, Table, gib_free, take_turns

HERE = os.path.dirname(os.path.abspath(__file__))
BYTES = 124439808 * 4
MPIRUN = shlex.split(os.environ.get("MPIRUN", ""))


def torch(name, script, *arguments, heap_kept=False):
    return Program(name, [sys.executable, os.path.join(HERE, script), *map(str, arguments)], heap_kept)


def compare_rules(build, table, rounds):
    print("\nan optimizer's step over GPT-2 124M's 148 tensors, f32; czero: the same tensors, each in an allocation of its "
          "own")
    for rule in "adamw", "adam", "sgd":
        for threads in 1, 2:
            ours = Program("czero", [f"{build}/bench/bench_rules", "--paced", "--separate", "--rule", rule, "--threads",
                                     str(threads)])
            peers = [torch("PyTorch", "rules.py", rule, threads),
                     torch("PyTorch, heap kept", "rules.py", rule, threads, heap_kept=True)]
            take_turns([ours, *peers], rounds)
            for peer in peers:
                table.add(f"{rule}, {threads} thread{'s' * (threads > 1)}", ours.seconds, peer.seconds, peer.name, BYTES,
                          threads)


def compare_muon(build, table, rounds):
    print("\na step of Muon over the four matrices of a layer of GPT-2 124M; PyTorch multiplies in bf16")
    ours, peer = Program("czero", [f"{build}/bench/bench_muon", "--paced"]), torch("PyTorch", "rules.py", "muon", 1)
    take_turns([ours, peer], rounds)
    table.add("muon, a layer, 1 thread", ours.seconds, peer.seconds, peer.name, 7077888 * 4, 1)


def ours_of_zero(build, ranks, separate):
    place = ["--separate"] if separate else []
    text = "own allocations" if separate else "flat"
    programs = [Program(f"{ranks} threads, {text}", [f"{build}/bench/bench_step", "--paced", "--ranks", str(ranks), *place])]
    if MPIRUN and ranks == 2 and os.access(f"{build}/bench/mpi/step", os.X_OK):
        programs.append(Program(f"2 MPI processes, {text}", [*MPIRUN, "-n", "2", f"{build}/bench/mpi/step", "--paced",
                                                             *place]))
    return programs


def compare_zero(build, table, rounds):
    """A few programs at a time: they have 3 to 10 GB each."""
    print("\ngradients' mean, sharded AdamW, new values on every rank: the same 148 tensors; PyTorch: DDP and "
          "ZeroRedundancyOptimizer on gloo, of which 0.05 to 0.13 s hand out the gradients")
    # For each turn: ranks, PyTorch's options, its heap kept, czero's tensors each in an allocation of its own.
    cases = [(2, [], False, False), (2, ["view"], True, True), (4, ["view"], False, False)]
    for ranks, options, kept, separate in cases:
        wanted = 3 * ranks + 7
        if gib_free() < wanted:
            print(f"  skipped, {ranks} ranks: {gib_free():.0f} GiB are free, {wanted} wanted")
            continue
        name = "PyTorch" + ", bucket views" * bool(options) + ", heap kept" * kept
        peer = torch(name, "zero_step.py", ranks, *options, heap_kept=kept)
        ours = ours_of_zero(build, ranks, separate)
        try:
            take_turns([peer, *ours], rounds)
        except RuntimeError as error:
            print(f"  {ranks} ranks: {error}", file=sys.stderr)
            continue
        for program in ours:
            table.add(f"zero_step, {program.name}", program.seconds, peer.seconds, name, BYTES, ranks)


def train_czero(build, folder, ranks, batch):
    """Seconds of a step, the mean of a few."""
    text = os.path.join(folder, "text")
    random.seed(1)
    with open(text, "wb") as file: # all 256 characters
        file.write(bytes(range(256)) * 40 + random.randbytes(400000))
    out = os.path.join(folder, "run")
    subprocess.run([f"{build}/examples/12_gpt", "--text", text, "--ranks", str(ranks), "--layers", "6", "--heads", "6",
                    "--channels", "384", "--block", "256", "--batch", str(batch * ranks), "--steps", "4", "--warmup", "1",
                    "--val-every", "1000", "--val-windows", "2", "--final-windows", "2", "--sample", "1", "--quiet",
                    "--out", out], check=True, stdout=subprocess.DEVNULL)
    with open(os.path.join(out, "summary.json"), encoding="utf-8") as file:
        phases = json.load(file)["step_seconds"]
    return sum(seconds for name, seconds in phases.items() if name != "update")


def compare_train(build, table, rounds):
    ranks, batch = 2, 4
    tokens = ranks * batch * 256
    print(f"\ntraining steps of examples/12_gpt's model: 6 layers, 6 heads, 384 channels, 256 tokens, vocabulary 256, {batch} "
          f"sequences a rank, {ranks} ranks of one thread, f32; PyTorch: DDP and ZeroRedundancyOptimizer, bucket views")
    peers = [torch("PyTorch", "train.py", ranks), torch("PyTorch, heap kept", "train.py", ranks, heap_kept=True)]
    ours, end = [], time.monotonic() + 60
    with tempfile.TemporaryDirectory() as folder:
        try:
            for turn in range(-1, rounds):
                if turn > 0 and time.monotonic() > end:
                    break
                for peer in peers:
                    seconds = peer.turn()
                    if turn >= 0:
                        peer.seconds.append(seconds)
                if turn >= 0:
                    ours.append(train_czero(build, folder, ranks, batch))
        finally:
            for peer in peers:
                peer.close()
    for peer in peers:
        table.add(f"training step, {ranks} ranks", ours, peer.seconds, peer.name, tokens * 4, ranks)
        print(f"    tokens/s: czero {tokens / statistics.median(ours):.0f}, {peer.name} "
              f"{tokens / statistics.median(peer.seconds):.0f}")


PARTS = {"rules": compare_rules, "muon": compare_muon, "zero": compare_zero, "train": compare_train}


def main():
    build, out, *words = sys.argv[1:]
    quick = "--quick" in words
    parts = [word for word in words if word in PARTS] or list(PARTS)
    table = Table()
    for part in parts:
        try:
            PARTS[part](build, table, 2 if quick else 5 if part != "train" else 3)
        except (RuntimeError, OSError, subprocess.CalledProcessError) as error:
            print(f"  {part}: {error}", file=sys.stderr)
    table.write(os.path.join(out, "peers.json"))


if __name__ == "__main__":
    main()
