# SPDX-License-Identifier: MIT
"""Mixes that nobody thought of. Each seed makes a model and parameter groups of several rules, with
averages, granules, types of state and no masters, some added later, some frozen for a while. Any
number of ranks has the bits of one, also after a stop. `test_mixes.py FIRST COUNT`: other seeds."""
import random
import sys
import tempfile
import unittest

import numpy as np

import czero

RULES = ("sgd", "adamw", "adam", "lion", "rmsprop", "nadam", "ademamix", "lamb", "lars",
         "adam_mini", "schedule_free_adamw", "adagrad", "radam", "adamax")
IN_8_BITS = ("adamw", "adam", "lion")
STEPS, STOP = 6, 3


def make_shape(choose):
    if choose.random() < 0.3:
        return (choose.choice([0, 1, 3, 255, 256, 257, 1000, 5000]),)
    return tuple(choose.choice([1, 2, 3, 5, 7, 16, 17, 33, 64]) for _ in range(2))


def make_group(choose, numbers, shapes, dtype):
    matrices = all(len(shapes[p]) == 2 for p in numbers)
    rule = "muon" if matrices and choose.random() < 0.4 else choose.choice(RULES)
    group = {"params": numbers, "rule": rule, "lr": 0.01}
    if choose.random() < 0.4:
        group["average"] = {"kind": choose.choice(["ema", "mean"]), "every": choose.choice([1, 2])}
    if choose.random() < 0.4 and rule != "muon":
        group["granule"] = choose.choice([7, 256, "row", "whole"])
    if choose.random() < 0.3:
        group["state_dtype"] = choose.choice(["bf16", "u8"] if rule in IN_8_BITS else ["bf16"])
    if dtype is np.float16 and choose.random() < 0.3:
        group["master"] = "none"
    return group


class Mix:
    def __init__(self, seed):
        choose = random.Random(seed)
        self.shapes = [make_shape(choose) for _ in range(choose.randint(2, 7))]
        self.dtype = choose.choice([np.float32, np.float16])
        left, self.groups = list(range(len(self.shapes))), []
        choose.shuffle(left)
        while left:
            count = choose.randint(1, len(left))
            self.groups.append(make_group(choose, left[:count], self.shapes, self.dtype))
            left = left[count:]
        self.late = self.groups.pop() if len(self.groups) > 1 and choose.random() < 0.5 else None
        if self.late and not any("average" in group for group in self.groups):
            self.late.pop("average", None)  # which is refused
        self.late_at = choose.randint(1, STOP - 1)
        self.freezes = choose.random() < 0.5
        self.max_norm = choose.choice([0, 1.0])
        self.partitions = choose.sample(["elements", "greedy"], 2)
        self.moves, self.looks = choose.random() < 0.3, choose.random() < 0.5
        self.u8_from = choose.choice([1, 256])
        self.passes = choose.choice([None, None, "none", "step"])  # of a ddp; with steps inside?
        if self.late:  # a ddp wants all parameters in groups from the beginning
            self.passes = None
        self.threads = choose.choice([1, 2])


class Training:
    """A mix on one rank. Gradients are the same on all ranks, and few bits long: their mean over
    any number of ranks is what they are."""

    def __init__(self, mix, group, partition):
        self.mix, self.model = mix, czero.Model()
        draw = np.random.RandomState(1)
        self.values = [draw.randn(*shape).astype(mix.dtype) for shape in mix.shapes]
        self.gradients = [np.zeros(shape, mix.dtype) for shape in mix.shapes]
        for p, pair in enumerate(zip(self.values, self.gradients)):
            self.model.add(f"p{p}", *pair)
        self.ddp = mix.passes and czero.DDP(group, self.model)
        self.zero = czero.Zero(group, self.model, "adamw", groups=mix.groups, partition=partition,
                               u8_from=mix.u8_from, ddp=self.ddp, threads=mix.threads)
        if mix.passes == "step":
            self.zero.set_overlap("step", max_norm=mix.max_norm)
        self.found = []

    def look(self):
        with self.zero.evaluated():
            self.found.append([value.tobytes() for value in self.values])

    def run(self, begin, end):
        mix, has_averages = self.mix, any("average" in group for group in self.mix.groups)
        for step in range(begin, end):
            if mix.late and step == mix.late_at:
                self.zero.add_param_group(mix.late)
            if mix.freezes and step in (2, 4):
                self.model.set_requires_grad("p0", step == 4)
            if self.ddp:
                self.ddp.begin()
            for p, gradient in enumerate(self.gradients):
                draw = np.random.RandomState(1000 * step + p)
                gradient[...] = np.round(draw.randn(*gradient.shape) * 16) / 16
                if self.ddp and not (mix.freezes and p == 0 and step in (2, 3)):
                    self.ddp.mark_ready(p)
            if self.ddp:
                self.ddp.finish()
            if mix.passes != "step":
                self.zero.step(max_norm=mix.max_norm)
            if mix.moves and step == 1:
                self.zero.reshard(mix.partitions[1])
            if mix.looks and has_averages and step in (1, 4):
                self.look()
            self.found.append(self.zero.fingerprint())
        self.found.append([value.tobytes() for value in self.values])
        return self.found


def stop_and_go_on(mix, folder, before, after):
    """Some steps on some ranks, the rest on others: what was found after the stop."""
    def first(group):
        training = Training(mix, group, mix.partitions[0])
        training.run(0, STOP)
        with czero.Checkpoint(group, folder, zero=training.zero) as checkpoint:
            checkpoint.save(STOP)

    def second(group):
        training = Training(mix, group, mix.partitions[1])
        if mix.late:
            training.zero.add_param_group(mix.late)
        if mix.freezes:
            training.model.set_requires_grad("p0", False)
        with czero.Checkpoint(group, folder, zero=training.zero) as checkpoint:
            checkpoint.load()
        return training.run(STOP, STEPS)
    czero.launch(first, before)
    return czero.launch(second, after)


class Mixes(unittest.TestCase):
    first, count = 0, 20

    def test_any_number_of_ranks_has_the_bits_of_one_also_after_a_stop(self):
        for seed in range(self.first, self.first + self.count):
            mix = Mix(seed)

            def train(group):
                return Training(mix, group, mix.partitions[0]).run(0, STEPS)
            expected = czero.launch(train, 1)[0]
            for ranks in (2, 3, 5):
                for rank, found in enumerate(czero.launch(train, ranks)):
                    self.assertEqual(found, expected, f"seed {seed}, rank {rank} of {ranks}")
            ranks = [2, 3, 5][seed % 3], [3, 1, 2][seed % 3]
            with tempfile.TemporaryDirectory() as folder:
                for found in stop_and_go_on(mix, folder, *ranks):
                    self.assertEqual(found, expected[-len(found):],
                                     f"seed {seed}, {ranks[0]} ranks and then {ranks[1]}")


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1].isdigit():
        Mixes.first, Mixes.count = map(int, sys.argv[1:])
        del sys.argv[1:]
    unittest.main()
