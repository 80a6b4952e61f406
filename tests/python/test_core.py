# SPDX-License-Identifier: MIT
"""The package without PyTorch. The oracle is the library's: the bits of one unsharded process."""
import array
import ctypes
import functools
import gc
import math
import multiprocessing
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import weakref
from unittest import mock

import numpy as np

import czero
from czero import _declarations as c
from czero import _arrays, _library, _mesh, state
from czero._library import lib

WORLDS = (1, 2, 3, 5, 7)
SHAPES = {"w": (13, 7), "scalar": (), "empty": (0, 3), "b": (29,)}


def make_model(dtype=np.float32):
    """Named arrays with values that depend on nothing but their names, and a model of them."""
    arrays = {}
    for name, shape in SHAPES.items():
        values = np.cos(np.arange(math.prod(shape), dtype=np.float64) + len(name))
        arrays[name] = (values.reshape(shape).astype(dtype), np.zeros(shape, dtype))
    return czero.Model(arrays), arrays


def fill_gradients(arrays, step, rank):
    for place, (value, gradient) in enumerate(arrays.values()):
        # small whole numbers: their mean over ranks has no rounding that depends on their number
        gradient[...] = (value > 0) * 4.0 - place - step % 3 + 0 * rank


def train(group, steps=5, **options):
    model, arrays = make_model()
    zero = czero.Zero(group, model, "adamw", lr=0.05, weight_decay=0.1, **options)
    for step in range(steps):
        fill_gradients(arrays, step, group.rank)
        zero.step()
    return {name: value.copy() for name, (value, _) in arrays.items()}, zero.state_dict()


def train_alone(steps=5):
    model, arrays = make_model()
    optim = czero.Optim(model, "adamw", lr=0.05, weight_decay=0.1)
    for step in range(steps):
        fill_gradients(arrays, step, 0)
        optim.step()
    return {name: value for name, (value, _) in arrays.items()}, optim.state_dict()


class Bits(unittest.TestCase):
    def same(self, a, b):
        if isinstance(a, dict):
            self.assertEqual(a.keys(), b.keys())
            for key in a:
                self.same(a[key], b[key])
        elif isinstance(a, np.ndarray):
            self.assertEqual((a.dtype, a.shape), (b.dtype, b.shape))
            self.assertEqual(a.tobytes(), b.tobytes())
        else:
            self.assertEqual(a, b)


class Training(Bits):
    def test_any_number_of_ranks_has_the_bits_of_one(self):
        alone, state = train_alone()
        for size in WORLDS:
            for partition in ("elements", "greedy"):
                with self.subTest(size=size, partition=partition):
                    for values, all_state in czero.launch(train, size,
                                                          arguments=(5,)) if partition == \
                            "elements" else czero.launch(
                                lambda group: train(group, partition="greedy"), size):
                        self.same(values, alone)
                        self.same(all_state, state)

    def test_state_loads_on_another_number_of_ranks(self):
        _, state = train_alone(3)

        def go_on(group):
            model, arrays = make_model()
            zero = czero.Zero(group, model, "adamw", lr=1.0)
            zero.load_state_dict(state)
            self.assertEqual(zero.param_groups[0]["lr"], 0.05)
            return zero.state_dict(to=0)
        first, *others = czero.launch(go_on, 3)
        self.same(first, state)
        self.assertEqual(others, [None, None])

    def test_values_that_move_are_told_and_come_back(self):
        def body(group):
            model, arrays = make_model()
            moved = []
            zero = czero.Zero(group, model, "sgd", lr=1.0, parameters_as_bucket_view=True,
                              moved=lambda number, value: moved.append(number))
            self.assertEqual(sorted(set(moved)), [0, 1, 2, 3])
            fill_gradients(arrays, 0, 0)
            before = model.value("w").copy()
            zero.step()
            self.same(model.value("w"), before - arrays["w"][1])
            wanted = model.value("w").copy()
            zero.close()
            self.same(arrays["w"][0], wanted)
        czero.launch(body, 2)

    def test_ddp_reduces_to_the_mean_and_hooks_see_every_bucket(self):
        def body(group):
            model, arrays = make_model()
            ddp = czero.DDP(group, model, bucket_bytes=64, first_bucket_bytes=64)
            seen, after = [], []
            if group.size > 1:
                def mean(bucket):
                    seen.append((bucket.index, len(bucket.buffer), bucket.params))
                    bucket.all_reduce("average")
                    bucket.then(lambda one: after.append(one.index))
                ddp.register_hook(mean)
            for passes in range(3):
                for _, gradient in arrays.values():
                    gradient[...] = group.rank
                with ddp.backward():
                    for name in reversed(model.names):
                        ddp.mark_ready(name)
                for _, gradient in arrays.values():
                    self.assertTrue((gradient == (group.size - 1) / 2).all())
            self.assertEqual(ddp.passes, 3)
            self.assertEqual(len(seen), len(after))
        for size in (1, 2, 3):
            czero.launch(body, size)

    def test_overlapped_steps_have_the_same_bits(self):
        def body(group):
            model, arrays = make_model()
            ddp = czero.DDP(group, model, bucket_bytes=64)
            czero_ = czero.Zero(group, model, "adamw", lr=0.05, weight_decay=0.1, ddp=ddp,
                                overlap="interleaved")
            for step in range(5):
                fill_gradients(arrays, step, group.rank)
                with ddp.backward():
                    for name in reversed(model.names):
                        ddp.mark_ready(name)
            czero_.close()
            return {name: value for name, (value, _) in arrays.items()}
        for values in czero.launch(body, 2):
            self.same(values, train_alone()[0])

    def test_steps_of_passes_have_options_and_are_counted(self):
        def body(group, overlap):
            model, arrays = make_model()
            ddp = czero.DDP(group, model)
            zero = czero.Zero(group, model, "sgd", lr=1.0, ddp=ddp, overlap=overlap)
            zero.set_overlap(overlap, max_norm=1.0)
            before = {name: value.copy() for name, (value, _) in arrays.items()}
            fill_gradients(arrays, 0, group.rank)
            with ddp.backward():
                for name in reversed(model.names):
                    ddp.mark_ready(name)
            moved = sum(((value - before[name]) ** 2).sum() for name, (value, _) in arrays.items())
            return float(moved), zero.step().norm, zero.trace()
        for moved, norm, trace in czero.launch(body, 2, arguments=("step",)):
            self.assertAlmostEqual(moved, 1, places=4)  # a step of length 1
            self.assertGreater(norm, 1)
            self.assertEqual(set(trace), {"agree", "reduce", "update", "sync", "fused"})
            self.assertGreater(trace["update"][0] + trace["fused"][0], 0)
        with self.assertRaises(czero.UnsupportedError):
            czero.launch(body, 2, arguments=("interleaved",))
        with self.assertRaises(czero.ArgumentError):
            czero.launch(body, 2, arguments=("none",))

    def test_uneven_inputs(self):
        class Counting(czero.Joinable):
            shadows, ended = 0, None

            def __init__(self, group):
                self.group = group

            def run(self):
                self.notify()
                self.group.barrier()

            def shadow(self):
                self.shadows += 1
                self.group.barrier()

            def finish(self, is_last):
                self.ended = is_last

        def body(group):
            model, arrays = make_model()
            zero = czero.Zero(group, model, "sgd", lr=0.1)
            own = Counting(group)
            with czero.Join(group, [own, zero]):
                for _ in range(2 + group.rank):
                    own.run()
                    fill_gradients(arrays, 0, 0)
                    zero.step()
            return own.shadows, own.ended, arrays["w"][0]
        found = czero.launch(body, 3)
        self.assertEqual([one[:2] for one in found], [(2, False), (1, False), (0, True)])
        self.same(found[0][2], found[2][2])

    def test_schedulers_set_the_rates_of_pytorch(self):
        model, arrays = make_model()
        optim = czero.Optim(model, "sgd", lr=1.0)
        both = czero.sched.SequentialLR([czero.sched.LinearLR(optim, 0.5, 1.0, 2),
                                         czero.sched.StepLR(optim, 2, 0.1)], [2])
        rates = []
        for _ in range(6):
            rates.append(optim.param_groups[0]["lr"])
            fill_gradients(arrays, 0, 0)
            optim.step()
            both.step()
        for ours, wanted in zip(rates, [0.5, 0.75, 1.0, 1.0, 0.1, 0.1]):
            self.assertAlmostEqual(ours, wanted, places=15)
        own = czero.sched.LambdaLR(optim, lambda epoch: 1 / (1 + epoch))
        own.step()
        with self.assertRaises(ZeroDivisionError):
            czero.sched.LambdaLR(optim, lambda epoch: 1 / 0)

    def test_closure_options_and_groups(self):
        model, arrays = make_model()
        optim = czero.Optim(model, "sgd", groups=[{"params": ["w"], "lr": 0.5},
                                                  {"params": "b", "lr": 0.25}], lr=9)
        fill_gradients(arrays, 0, 0)

        def closure():
            return 1.5
        result = optim.step(closure, norm=True)
        norm = math.sqrt(sum(float((arrays[name][1].astype(np.float64) ** 2).sum())
                             for name in ("w", "b")))
        self.assertEqual(result.loss, 1.5)
        self.assertAlmostEqual(result.norm, norm, places=5)
        self.assertEqual([dict(group)["lr"] for group in optim.param_groups], [0.5, 0.25])
        optim.param_groups[0]["initial_lr"] = 3.0
        self.assertEqual(optim.param_groups[0]["initial_lr"], 3.0)
        self.assertEqual(optim.param_groups[1].params, [3])
        arrays["w"][1][0] = np.nan
        self.assertTrue(optim.step(skip_nonfinite=True).skipped)

    def test_checkpoints_and_archives(self):
        with tempfile.TemporaryDirectory() as folder:
            place = pathlib.Path(folder, "checkpoints")

            def save(group):
                model, arrays = make_model()
                zero = czero.Zero(group, model, "adamw", lr=0.05, weight_decay=0.1)
                checkpoint = czero.Checkpoint(group, place, zero=zero)
                self.assertIsNone(checkpoint.load(missing_ok=True))
                for step in range(3):
                    fill_gradients(arrays, step, group.rank)
                    zero.step()
                checkpoint.save(3, common={"epoch": 7, "names": ["a"], "x": np.arange(3.0)},
                                own={"rank": group.rank})
                checkpoint.export(pathlib.Path(folder, "all.safetensors"), 3)
                return zero.fingerprint()

            def load(group):
                model, arrays = make_model()
                for value, _ in arrays.values():
                    value[...] = 0
                zero = czero.Zero(group, model, "adamw", lr=1.0)
                loaded = czero.Checkpoint(group, place, zero=zero).load()
                self.assertEqual((loaded.step, loaded.world_size), (3, 2))
                self.assertEqual(loaded.common["epoch"], 7)
                self.assertEqual(loaded.common["x"].tolist(), [0, 1, 2])
                self.assertEqual(loaded.own, {"rank": group.rank} if group.rank < 2 else None)
                for step in range(3, 5):
                    fill_gradients(arrays, step, group.rank)
                    zero.step()
                return {name: value for name, (value, _) in arrays.items()}
            prints = set(czero.launch(save, 2))
            for values in czero.launch(load, 3):
                self.same(values, train_alone()[0])
            with czero.Archive(place) as archive:
                self.assertEqual(list(archive), list(SHAPES))
                self.assertEqual({archive.fingerprint()}, prints)
                self.assertEqual(archive.slots("w"), ["exp_avg", "exp_avg_sq"])
                self.same(archive.read("w", begin=3, end=9), archive["w"].ravel()[3:9])
                self.assertEqual(archive.verify()["problems"], 0)
                self.assertEqual(archive.read_dict(1), {"rank": 1})
                with self.assertRaises(KeyError):
                    archive["none"]
                wanted = archive["w"]
            with czero.Archive(pathlib.Path(folder, "all.safetensors")) as archive:
                self.same(archive["w"], wanted)
            with self.assertRaises(czero.ArgumentError):
                czero.Archive(pathlib.Path(folder, "nothing"))

    def test_flat_blocks_have_the_bits_of_single_arrays(self):
        views = {"w": (13, 7), "h.*.b": (2, 5), "scalar": (), "empty": (0, 3), "last": 4}
        names = ["w", "h.0.b", "h.1.b", "scalar", "empty", "last"]
        shapes = [(13, 7), (5,), (5,), (), (0, 3), (4,)]
        total = sum(math.prod(shape) for shape in shapes)
        start = np.cos(np.arange(total, dtype=np.float32))

        def body(group, flat):
            values, gradients, model = start.copy(), np.zeros(total, np.float32), czero.Model()
            if flat:
                self.assertEqual(model.add_flat(values, None, views), list(range(6)))
                model.set_flat_gradients("h.1.b", gradients)
            else:
                at = 0
                for name, shape in zip(names, shapes):
                    end = at + math.prod(shape)
                    model.add(name, values[at:end].reshape(shape),
                              gradients[at:end].reshape(shape))
                    at = end
            self.assertEqual(model.names, names)
            self.assertEqual([model.value(name).shape for name in names], shapes)
            zero = czero.Zero(group, model, "adamw", lr=0.1)
            for step in range(3):
                gradients[:] = values - step
                zero.step()
            last = np.ones(4, np.float32)
            model.set_gradient("last", last)
            zero.step()
            return values, zero.state_dict()
        for size in (1, 3):
            for one, two in zip(czero.launch(body, size, arguments=(True,)),
                                czero.launch(body, size, arguments=(False,))):
                self.same(one[0], two[0])
                self.same(one[1], two[1])
        model = czero.Model({"single": np.zeros(3, np.float32)})
        for values, gradients, given, words in (
                (start, None, {"a": total - 1}, "the views have"),
                (start, start[1:].copy(), {"a": total}, "block of gradients"),
                (start, start.astype(np.float64), {"a": total}, "f64"),
                (start, None, {"single": total}, "single"),
                (start, None, {"a.*": ()}, "no dimension"),
                (start, None, {"a.*.*": (1, total)}, r"one '\*'")):
            with self.assertRaisesRegex(czero.ArgumentError, words):
                model.add_flat(values, gradients, given)
        self.assertEqual(model.names, ["single"])
        with self.assertRaisesRegex(czero.ArgumentError, "'single' is in no block"):
            model.set_flat_gradients("single", None)

    def test_weights_of_ranks_and_sums(self):
        def body(group, **options):
            value, gradient = np.zeros(3), np.full(3, group.rank + 1.0)
            zero = czero.Zero(group, czero.Model({"a": (value, gradient)}), "sgd", lr=1.0,
                              **options)
            if not options:
                zero.set_weight(2.0 * group.rank)
                with czero.Join(group, [zero], divide="weight"):
                    zero.step()
                with self.assertRaises(czero.ArgumentError):
                    zero.set_weight(-1.0)
            else:
                zero.step()
            return value[0]
        self.assertEqual(czero.launch(body, 2), [-2.0] * 2)  # (0 * 1 + 2 * 2) / 2
        self.assertEqual(czero.launch(lambda group: body(group, gradients="sum"), 2), [-3.0] * 2)

    def test_state_is_shown_and_cannot_be_written(self):
        model, arrays = make_model()
        optim = czero.Optim(model, "adamw", lr=0.1)
        fill_gradients(arrays, 0, 0)
        optim.step()
        shown = optim.state("w", "exp_avg")
        self.assertTrue(shown.any())
        with self.assertRaises(ValueError):
            shown[0] = 1.0
        with mock.patch.dict(sys.modules, numpy=None):
            shown = optim.state("w", "exp_avg")
        self.assertIsInstance(shown, memoryview)
        self.assertTrue(shown.readonly)

    def test_values_of_16_bits_have_masters_or_none(self):
        def train(**options):
            model = czero.Model()
            values, gradients = np.ones(300, np.float16), np.full(300, 1 / 3, np.float16)
            model.add("w", values, gradients)
            optim = czero.Optim(model, "adamw", lr=0.01, **options)
            for _ in range(3):
                optim.step()
            return optim, values
        optim, values = train()
        master = optim.state("w", "master_param")
        self.assertEqual((master.dtype, optim.state("w", "exp_avg").dtype),
                         (np.float32, np.float32))
        self.assertEqual(values.tolist(), master.astype(np.float16).tolist())
        self.assertIn("master_param", optim.state_dict()["state"]["w"])
        optim, values = train(master="none", state_dtype="bf16", seed=3)
        self.assertIsNone(optim.state("w", "master_param"))
        self.assertEqual(optim.state("w", "exp_avg").nbytes, 600)
        self.assertEqual(optim.state_bytes, 1200)
        self.assertGreater(len(set(values.tolist())), 1)  # rounded by chance
        groups = [{"params": ["w"], "master": "none", "state_dtype": "bf16"}]
        self.assertEqual(train(groups=groups)[0].state_bytes, 1200)
        with self.assertRaisesRegex(czero.ArgumentError, "master is one of"):
            train(master="some")
        with self.assertRaisesRegex(czero.ArgumentError, "wanted is f32, bf16 or u8"):
            train(state_dtype="f64")
        with self.assertRaisesRegex(czero.ArgumentError, "state_dtype is 'f32', 'bf16', 'u8' or 'f64'"):
            train(state_dtype="8 bits")

    def test_moments_in_8_bits(self):
        def train(group, **options):
            model = czero.Model()
            values = np.linspace(-1, 1, 5000, dtype=np.float32)
            gradients = np.sin(np.arange(5000)).astype(np.float32)
            model.add("w", values, gradients)
            options = {"lr": 0.01, "state_dtype": "u8", **options}
            optim = (czero.Zero(group, model, "adamw", **options) if group else
                     czero.Optim(model, "adamw", **options))
            for _ in range(3):
                optim.step()
            return optim, (values.tolist(), optim.fingerprint())
        optim, alone = train(None)
        self.assertEqual(optim.state_bytes, 2 * (5000 + 20 * 4))
        state = optim.state_dict()  # in f32: the same codes when it is loaded
        self.assertEqual(state["state"]["w"]["exp_avg"].dtype, np.float32)
        before = optim.fingerprint()
        optim.load_state_dict(state)
        self.assertEqual(optim.fingerprint(), before)
        with self.assertRaisesRegex(czero.UnsupportedError, "is in 8 bits and has no address"):
            optim.state("w", "exp_avg")
        self.assertEqual(train(None, u8_from=6000)[0].state_bytes, 40000)
        for rank in czero.launch(lambda group: train(group)[1], 4):
            self.assertEqual(rank, alone)

    def test_sharded_values_of_16_bits_are_those_of_one_process(self):
        def train(group, **options):
            model = czero.Model()
            values, gradients = np.ones(300, np.float16), np.full(300, 1 / 3, np.float16)
            model.add("w", values, gradients)
            optim = (czero.Zero(group, model, "adamw", lr=0.01, **options) if group else
                     czero.Optim(model, "adamw", lr=0.01, **options))
            for _ in range(3):
                optim.step()
            return values.tolist(), optim.fingerprint()
        for options in ({}, {"master": "none", "state_dtype": "bf16", "seed": 3}):
            alone = train(None, **options)
            for rank in czero.launch(lambda group: train(group, **options), 2):
                self.assertEqual(rank, alone)

    def test_loss_scale_is_that_of_a_loop_by_hand_on_any_number_of_ranks(self):
        bad = {3: 0, 4: 1, 9: 1}  # the step, and the rank whose gradient is infinite in it

        def train(group, overlap=None):
            model, scale = czero.Model(), czero.LossScale(1024, interval=2)
            values, gradients = np.ones(40, np.float32), np.zeros(40, np.float32)
            model.add("w", values, gradients)
            zero, ddp = None, None
            if overlap:
                ddp = czero.DDP(group, model)
                zero = czero.Zero(group, model, "sgd", lr=0.5, ddp=ddp)
                zero.set_overlap(overlap, loss_scale=scale)
            else:
                zero = czero.Zero(group, model, "sgd", lr=0.5)
            seen = []
            for step in range(12):
                if step == 6:  # a stop in the middle
                    saved, scale_again = scale.state_dict(), scale
                    scale_again.load_state_dict({**saved, "good_steps": 0, "scale": 1.0})
                    scale_again.load_state_dict(saved)
                if ddp:
                    ddp.begin()
                gradients[:] = 0.25 * scale.scale
                if bad.get(step, -1) % group.size == group.rank and step in bad:
                    gradients[7] = np.inf
                if ddp:
                    ddp.mark_ready("w")
                    ddp.finish()
                else:
                    zero.step(loss_scale=scale)
                seen.append((scale.scale, scale.good_steps, float(values[7])))
            return seen, zero.skip_count
        scale, good, value, expected = 1024.0, 0, 1.0, []
        for step in range(12):
            if step in bad:
                scale, good = scale / 2, 0
            else:
                value, good = value - 0.125, good + 1
                if good == 2:
                    scale, good = scale * 2, 0
            expected.append((scale, good, value))
        for ranks in (1, 2, 3):
            for overlap in (None, "step"):
                for seen, skipped in czero.launch(lambda group: train(group, overlap), ranks):
                    self.assertEqual(seen, expected)
                    self.assertEqual(skipped, 3)
        model = czero.Model({"w": (np.ones(4, np.float32), np.ones(4, np.float32))})
        with self.assertRaisesRegex(czero.ArgumentError, "backoff 2, wanted is 0 to 1"):
            czero.Optim(model, "sgd", lr=1.0).step(loss_scale=czero.LossScale(backoff=2))
        with self.assertRaisesRegex(czero.ArgumentError, "here are scale"):
            czero.LossScale().load_state_dict({"scale": 1.0})

    def test_plans_are_what_is_measured(self):
        def body(group):
            return czero.Zero(group, make_model()[0], "adamw").state_bytes
        measured = czero.launch(body, 3)
        planned = [rank["state_bytes"] for rank in czero.plan(make_model()[0], 3)]
        for plan, rank in zip(planned, measured):
            self.assertTrue(rank <= plan < rank + 2 * 64)  # slots begin at cache lines
        sizes = {name: ("f32", shape) for name, shape in SHAPES.items()}
        self.assertEqual([rank["state_bytes"] for rank in czero.plan(sizes, 3)], planned)
        groups = [{"params": ["w", "scalar"], "rule": "lion"}]
        for given in (sizes, make_model()[0]):
            (mixed,), (alone,) = (czero.plan(given, groups=some) for some in (groups, None))
            self.assertEqual(alone["state_bytes"], 2 * 512)  # whole cache lines of 121 elements
            self.assertEqual(mixed["state_bytes"], 512 + 128)  # the second slot of 29
        with self.assertRaisesRegex(KeyError, "no parameter 'x'"):
            czero.plan(sizes, groups=[{"params": "x", "rule": "lion"}])

    def test_granules_are_kept_and_change_no_bit(self):
        alone = train_alone()
        for granule in (7, "row", "whole"):
            groups = [{"params": list(SHAPES), "granule": granule}]
            for values, _ in czero.launch(functools.partial(train, groups=groups), 3):
                self.same(values, alone[0])
        planned = czero.plan({"w": ("f32", (100,)), "b": ("f32", (28,))}, 2, granule="whole")
        self.assertEqual(sorted(rank["state_bytes"] for rank in planned), [2 * 128, 2 * 448])


class Averages(Bits):
    def test_averages_are_those_of_a_plain_loop_and_values_come_back(self):
        def on_rank(group):
            model, arrays = make_model()
            zero = czero.Zero(group, model, "adamw", lr=0.1, average=0.75)
            plain = {}
            for step in range(4):
                fill_gradients(arrays, step, group.rank)
                zero.step()
                for name, (values, _) in arrays.items():
                    kept = plain.setdefault(name, values.copy())
                    plain[name] = kept + np.float32(0.25) * (values - kept)
            before = {name: values.copy() for name, (values, _) in arrays.items()}
            with zero.evaluated():
                for name, (values, _) in arrays.items():
                    np.testing.assert_array_equal(values, plain[name])
                with self.assertRaisesRegex(czero.StateError, "brings back those that train"):
                    zero.step()
            for name, (values, _) in arrays.items():
                np.testing.assert_array_equal(values, before[name])
        for world in WORLDS[:3]:
            czero.launch(on_rank, ranks=world)

    def test_an_average_is_a_decay_or_a_dictionary(self):
        model, arrays = make_model(np.float64)
        mean = {"kind": "mean", "start": 1, "every": 2}
        optim = czero.Optim(model, "sgd", lr=0.5, average=mean, groups=[
            {"params": ["w"]}, {"params": ["b"], "average": {"warm_up": True, "decay": 0.5}}])
        for step in range(5):
            fill_gradients(arrays, step, 0)
            optim.step()
        self.assertEqual((optim.scalar("w", "n_averaged"), optim.scalar("b", "n_averaged")), (2, 5))
        self.assertEqual(optim.state("w", "average").dtype, np.float64)
        self.assertEqual(optim.param_groups[1]["average_decay"], 0.5)
        with self.assertRaisesRegex(czero.ArgumentError, "not 'power'"):
            czero.Optim(model, "sgd", lr=0.5, average={"power": 2})
        with self.assertRaisesRegex(czero.ArgumentError, "kind is one of"):
            czero.Optim(model, "sgd", lr=0.5, average={"kind": "some"})


class OwnRules(Bits):
    """Rules in Python."""

    @staticmethod
    def adamw(value, gradient, state, hypers, step):
        """As the library's kernel has it, operation by operation, in the arrays' type."""
        one = value.dtype.type
        beta1, beta2 = hypers["beta1"], hypers["beta2"]
        m, v = state["exp_avg"], state["exp_avg_sq"]
        value *= one(1 - hypers["lr"] * hypers["weight_decay"])
        m[...] = m * one(beta1) + gradient * one(1 - beta1)
        v[...] = v * one(beta2) + gradient * gradient * one(1 - beta2)
        root = np.sqrt(v) / one(math.sqrt(1 - beta2 ** step)) + one(1e-8)
        value -= one(hypers["lr"] / (1 - beta1 ** step)) * (m / root)

    def rule(self, update, **options):
        return czero.Rule("mine", update, hypers={
            "lr": None, "beta1": (0.9, 0, 1), "beta2": (0.999, 0, 1), "weight_decay": 0.1},
            slots=["exp_avg", "exp_avg_sq"], **options)

    def train(self, group, rule, **options):
        model, arrays = make_model()
        optim = (czero.Zero(group, model, rule, lr=0.05, **options) if group is not None
                 else czero.Optim(model, rule, lr=0.05))
        for step in range(5):
            fill_gradients(arrays, step, 0)
            optim.step()
        return {name: value.copy() for name, (value, _) in arrays.items()}, optim.state_dict()

    def test_any_number_of_ranks_has_the_bits_of_one(self):
        def cost(shape):
            return len(shape) + 1
        for options in ({}, {"whole": True}, {"granule": 3}, {"granule": "row"},
                        {"whole": True, "cost": cost}):
            rule = self.rule(self.adamw, **options)
            values, kept = self.train(None, rule)
            for name, value in train_alone()[0].items():  # the library's own
                # the same equations, but NumPy rounds each of their steps to f32
                np.testing.assert_allclose(values[name], value, rtol=1e-5)
            self.assertEqual(kept["rule"], "mine")
            for size in WORLDS:
                for got, there in czero.launch(self.train, size, arguments=(rule,)):
                    self.same(got, values)
                    self.same(there["state"]["w"], kept["state"]["w"])

    def test_spans_are_flat_and_whole_parameters_have_their_shapes(self):
        def update(value, gradient, state, hypers, step):
            seen.add((value.ndim, value.shape == state["exp_avg"].shape, step, *hypers))
            with self.assertRaises(ValueError):
                gradient[...] = 0
        for whole, dimensions in ((False, {1}), (True, {0, 1, 2})):
            seen = set()
            self.train(None, self.rule(update, whole=whole))
            self.assertEqual({one[0] for one in seen}, dimensions)
            self.assertEqual({one[1:] for one in seen}, {
                (True, step, "lr", "beta1", "beta2", "weight_decay") for step in range(1, 6)})

    def test_state_starts_and_is_loaded_on_another_number_of_ranks(self):
        def update(value, gradient, state, hypers, step):
            state["count"] += 1
            value[...] = state["count"]
        rule = czero.Rule("count", update, slots={"count": 7})

        def body(group, given):
            model, arrays = make_model()
            zero = czero.Zero(group, model, rule)
            if given is not None:
                zero.load_state_dict(given)
            zero.step()
            return arrays["b"][0][0], zero.state_dict()
        value, kept = czero.launch(body, 3, arguments=(None,))[0]
        self.assertEqual(value, 8)
        self.assertEqual(czero.launch(body, 2, arguments=(kept,))[1][0], 9)

    def test_in_the_backward_pass(self):
        def body(group):
            model, arrays = make_model()
            ddp = czero.DDP(group, model, bucket_bytes=64)
            keep = czero.Zero(group, model, rule, lr=0.05, ddp=ddp, overlap="interleaved")
            for step in range(5):
                fill_gradients(arrays, step, group.rank)
                with ddp.backward():
                    for name in reversed(model.names):
                        ddp.mark_ready(name)
            del keep
            return {name: value for name, (value, _) in arrays.items()}
        rule = self.rule(self.adamw)
        values, _ = self.train(None, rule)
        for got in czero.launch(body, 2):
            self.same(got, values)

    def test_an_exception_comes_out_of_the_step_and_others_return(self):
        def fine(*_):
            pass

        def fails(*_):
            raise LookupError("no such thing")

        def body(group, overlap):
            model, arrays = make_model()
            ddp = czero.DDP(group, model) if overlap else None
            zero = czero.Zero(group, model, self.rule(fails if group.rank == 1 else fine), lr=1,
                              ddp=ddp, overlap="step" if overlap else "none")
            raised = None
            try:
                if overlap:
                    with ddp.backward():
                        for name in model.names:
                            ddp.mark_ready(name)
                else:
                    zero.step()
            except LookupError as error:
                raised = error
            group.barrier()
            return raised
        for overlap in (False, True):
            with self.subTest(overlap=overlap):
                other, mine = czero.launch(body, 2, arguments=(overlap,))
                self.assertIsNone(other)
                self.assertIn("no such thing", str(mine))
        with self.assertRaises(LookupError):
            self.train(None, self.rule(fails))

    def test_groups_with_rules_of_their_own(self):
        def body(group, own):
            model, arrays = make_model()
            here = (model,) if group is None else (group, model)
            make = czero.Optim if group is None else czero.Zero
            optim = make(*here, "lion", lr=0.5, groups=[
                {"params": "w"}, {"params": ["scalar", "empty"], "rule": "sgd", "lr": 0.25}])
            optim.add_param_group({"params": "b", "rule": own, "lr": 0.05})
            for step in range(3):
                fill_gradients(arrays, step, 0)
                optim.step()
            self.assertEqual(optim.param_groups[1]["lr"], 0.25)
            self.assertNotIn("beta1", optim.param_groups[1])
            with self.assertRaisesRegex(czero.ArgumentError, "there is no rule 'tomorrow'"):
                optim.add_param_group({"params": [], "rule": "tomorrow"})
            return {name: value for name, (value, _) in arrays.items()}, optim.state_dict()
        for whole in (False, True):
            rule = self.rule(self.adamw, whole=whole)
            values, kept = body(None, rule)
            self.assertEqual(kept["rule"], "lion")
            self.assertEqual([kept["param_groups"][one].get("rule") for one in "012"],
                             [None, "sgd", "mine"])
            for got, there in czero.launch(body, 2, arguments=(rule,)):
                self.same(got, values)
                self.same(there["state"]["b"], kept["state"]["b"])
                self.assertEqual(there["param_groups"], kept["param_groups"])

    def test_an_exception_of_a_group_s_rule_comes_out_of_the_step(self):
        def fails(*_):
            raise LookupError("no such thing")
        model, _ = make_model()
        optim = czero.Optim(model, "lion", groups=[{"params": "w"}, {
            "params": "b", "rule": czero.Rule("fails", fails)}])
        with self.assertRaises(LookupError):
            optim.step()

    def test_what_no_rule_can_be_is_refused(self):
        def none(*_):
            pass
        for text, make in (
                ("is a function", lambda: czero.Rule("r", 3)),
                ("a default, or", lambda: czero.Rule("r", none, hypers={"lr": "x"})),
                ("a default, or", lambda: czero.Rule("r", none, hypers={"lr": (1, 2)})),
                ("not from 0 to 1", lambda: czero.Rule("r", none, hypers={"lr": (2, 0, 1)})),
                ("a number of elements, 'row' or 'whole', not 'line'",
                 lambda: czero.Rule("r", none, granule="line")),
                ("granule is -3", lambda: czero.Rule("r", none, granule=-3)),
                ("cost of rule 'r' is a function", lambda: czero.Rule("r", none, cost=3)),
                ("may be 15", lambda: czero.Rule("r", none, hypers={str(k): 1 for k in range(16)})),
                ("no default", lambda: czero.Optim(make_model()[0], self.rule(none))),
                ("step", lambda: czero.Optim(make_model()[0],
                                             czero.Rule("r", none, slots=["step"]))),
                ("name is empty", lambda: czero.Optim(make_model()[0], czero.Rule("", none))),
                ("NUL", lambda: czero.Optim(make_model()[0], czero.Rule("a\0", none)))):
            with self.subTest(text), self.assertRaisesRegex(czero.ArgumentError, text):
                make()
        for size in (1, 2):
            self.assertEqual(sum(one["state_bytes"] for one in czero.plan(
                {"w": ("f32", (16, 16))}, size, self.rule(none), lr=1)), 2 * 4 * 256)


class OtherWays(Bits):
    """Hooks with a state, averaged models, samplers."""

    def reduce(self, group, name, state, passes=3):
        """What some passes make of a matrix of rank 1 on each rank, and the state."""
        model = czero.Model({"w": (np.ones((20, 30), np.float32), np.ones((20, 30), np.float32))})
        ddp = czero.DDP(group, model, all_reduce=True)
        kept = state(group, model) if callable(state) else state
        ddp.register_hook(name, kept)
        if name == "powersgd" and group.rank == 1:
            kept.close()  # which waits for the end of the ddp
        for _ in range(passes):
            gradient = np.outer(np.arange(20), np.ones(30)).astype(np.float32) + group.rank
            model.set_gradient("w", gradient)
            with ddp.backward():
                ddp.mark_ready("w")
        return gradient, kept

    def test_hooks_with_a_state(self):
        mean = np.outer(np.arange(20), np.ones(30)) + 1
        lowrank = dict(rank=2, start_iter=-1)
        for name, given in (("fp16_compress", None), ("fp16_compress", "all_reduce"),
                            ("bf16_compress", "quantize_per_tensor"),
                            ("powersgd", lambda group, model: czero.PowerSGD(model, **lowrank)),
                            ("BF16_COMPRESS", lambda _, model: czero.PowerSGD(model, **lowrank)),
                            ("quantize_per_channel", 64)):
            self.assertIn(name.lower(), czero.hooks())
            with self.subTest(name, given=given):
                for gradient, state in czero.launch(self.reduce, 3, arguments=(name, given)):
                    # 8 bits for 0 to 20: steps of 0.08
                    np.testing.assert_allclose(gradient, mean, rtol=2e-2, atol=0.1)
        before, after = czero.launch(
            lambda group: self.reduce(group, "fp16_compress",
                                      lambda _, model: czero.PowerSGD(model, **lowrank))[1]
            .compression, 2)[0]
        self.assertEqual((before, after), (3 * 600, 3 * 100))

    def test_local_gradients_after_some_passes(self):
        def make(group, model):
            return czero.PostLocalSGD(2, local_gradients=True)
        found = czero.launch(lambda group: (self.reduce(group, "post_local_sgd", make)[0][0, 0],
                                            self.reduce(group, "post_local_sgd", make, 1)[0][0, 0]),
                             3)
        self.assertEqual(found, [(0, 1), (1, 1), (2, 1)])

    def test_a_state_that_a_hook_does_not_take_is_refused(self):
        def make(group, model):
            return czero.PostLocalSGD(2)
        for name, given in (("all_reduce", "powersgd"), ("powersgd", 3), ("powersgd", make),
                            ("post_local_sgd", "all_reduce"), ("post_local_sgd", None),
                            ("record", None), ("no such hook", None),
                            ("fp16_compress", "no such hook")):
            with self.subTest(name, given=given), self.assertRaises(czero.ArgumentError):
                czero.launch(self.reduce, 1, arguments=(name, given))

    def test_low_rank_states_go_on(self):
        def body(group, given):
            model = czero.Model({"w": (np.ones((9, 8), np.float32), np.ones((9, 8), np.float32))})
            state = czero.PowerSGD(model, start_iter=-1)
            ddp = czero.DDP(group, model, all_reduce=True)
            ddp.register_hook("powersgd", state)
            if given:
                state.load_state_dict(given)
            for step in range(2 * bool(given), 4 if given else 2):
                gradient = np.cos(np.arange(72.0) * (step + 1)).reshape(9, 8).astype(np.float32)
                model.set_gradient("w", gradient)
                with ddp.backward():
                    ddp.mark_ready("w")
            return gradient, state.state_dict()
        half = czero.launch(body, 1, arguments=(None,))[0][1]
        self.assertEqual(half["iter"], 2)
        again = [czero.launch(body, 1, arguments=(half,))[0][0] for _ in range(2)]
        self.assertTrue((again[0] == again[1]).all())

    def test_models_are_averaged_now_and_then(self):
        def body(group, period):
            x = np.full(5, float(group.rank))
            model = czero.Model({"x": (x, np.full(5, float(group.rank)))})
            optim = czero.Optim(model, "sgd", lr=1.0)
            averager = czero.Averager(group, model, period, warmup_steps=1)
            found = []
            for _ in range(5):
                optim.step()
                found.append((averager.average(), float(x[0])))
            kept = averager.state_dict()
            averager.load_state_dict({"step": 70})
            self.assertEqual(averager.state_dict(), {"step": 70})
            return found, kept
        found, kept = czero.launch(body, 4, arguments=(2,))[2]
        self.assertEqual([one for one, _ in found], [0, 4, 0, 4, 0])
        self.assertEqual((found[1][1], kept), (-1.5, {"step": 5}))
        found, _ = czero.launch(body, 4, arguments=([(2, 2), (4, 4)],))[0]
        self.assertEqual([one for one, _ in found], [0, 4, 0, 2, 0])
        for wrong in (0, "x", [(1,)], 2**70, []):
            with self.subTest(wrong), self.assertRaises(czero.ArgumentError):
                czero.launch(body, 2, arguments=(wrong,))

    def test_samples_are_dealt_out_alike_for_any_number_of_ranks(self):
        def body(group, position):
            sampler = czero.Sampler(10, 4, group, seed=3)
            sampler.position = position
            return [next(sampler).tolist() for _ in range(5)], sampler.position
        whole = czero.launch(body, 1, arguments=(0,))[0]
        self.assertEqual(sorted(sum(whole[0], [])), sorted(2 * list(range(10))))
        self.assertEqual(whole[1], 20)
        for size in WORLDS:
            ranks = czero.launch(body, size, arguments=(0,))
            steps = [sum((mine[0][step] for mine in ranks), []) for step in range(5)]
            self.assertEqual((steps, ranks[0][1]), whole)
            self.assertEqual(czero.launch(body, size, arguments=(8,))[0][0][0], ranks[0][0][2])
        with self.assertRaises(czero.ArgumentError):
            czero.Sampler(0, 4)


class Groups(Bits):
    def test_every_collective(self):
        def body(group):
            size, rank = group.size, group.rank
            one = np.full(3, rank + 1.0)
            group.all_reduce(one)
            self.assertEqual(one.tolist(), [size * (size + 1) / 2] * 3)
            one = np.array([rank], np.int64)
            group.broadcast(one, size - 1)
            self.assertEqual(one.tolist(), [size - 1])
            out = np.zeros(size, np.int32)
            group.all_gather(np.array([rank], np.int32), out)
            self.assertEqual(out.tolist(), list(range(size)))
            piece = np.zeros(2, np.float32)
            group.reduce_scatter(np.arange(2 * size, dtype=np.float32), piece)
            self.assertEqual(piece.tolist(), [size * 2 * rank, size * (2 * rank + 1)])
            swapped = np.zeros(size, np.uint8)
            group.all_to_all(np.full(size, rank, np.uint8), swapped)
            self.assertEqual(swapped.tolist(), list(range(size)))
            gathered = np.zeros(size) if rank == 0 else None
            group.gather(np.array([float(rank)]), gathered)
            back = np.zeros(1)
            group.scatter(gathered, back)
            self.assertEqual(back[0], rank)
            total = np.zeros(1) if rank == 0 else None
            group.reduce(np.ones(1), total, "sum", 0)
            self.assertEqual(rank or total[0], rank or size)
            self.assertEqual(group.broadcast_bytes(b"abc" if rank == 0 else b""), b"abc")
            work = group.all_reduce(one, wait=False)
            work.wait()
            self.assertTrue(work.done())
            self.assertEqual((group.local_rank, group.local_size), (rank, size))
            self.assertGreaterEqual(group.local_cores(), 1)
            half = group.split(rank % 2)
            self.assertEqual(half.size, (size + 1 - rank % 2) // 2)
            first = group.subset([0])
            self.assertEqual(first is not None, rank == 0)
            group.barrier()
        for size in WORLDS:
            czero.launch(body, size)

    def test_arrays_of_every_kind_are_taken_in_place(self):
        group = czero.Group.self_()
        for values in (array.array("f", [1, 2]), bytearray(b"ab"), memoryview(bytearray(4)),
                       np.zeros((2, 3), np.float16), np.zeros((), np.int32)):
            group.broadcast(values)
        model = czero.Model()
        values, gradient = array.array("d", [1.0, 2.0]), array.array("d", [1.0, 1.0])
        model.add("a", values, gradient)
        czero.Optim(model, "sgd", lr=0.5).step()
        self.assertEqual(list(values), [0.5, 1.5])

    def test_arrays_that_cannot_be_taken_are_refused_with_a_sentence(self):
        model = czero.Model()
        read_only = np.zeros(3)
        read_only.flags.writeable = False
        for value, words in ((np.zeros((4, 4)).T, "not contiguous"), (np.zeros(8)[::2], "contig"),
                             (np.zeros(3, bool), "type"), (np.zeros(3, complex), "type"),
                             (read_only, "read"), ([1.0], "no array"), (b"abc", "read-only"),
                             (np.zeros((1,) * 9), "dimensions"), (3.5, "no array")):
            with self.subTest(words), self.assertRaisesRegex(czero.ArgumentError, words):
                model.add("x", value)
        with self.assertRaisesRegex(ValueError, r"gradient of 'x'.*float|f64 of shape \(2,\)"):
            model.add("x", np.zeros(3), np.zeros(2))
        self.assertEqual(len(model), 0)
        model.add("x", np.zeros((2, 1, 3))[:, :, :])  # a dimension of 1 has no gaps

    def test_arrays_that_are_read_only_are_taken_where_they_are_only_read(self):
        class Versioned:
            """What libraries with version 1 of DLPack hand out, such as NumPy from 2.1 on."""

            def __init__(self, flags, major=1):
                self.memory, self.shape = (ctypes.c_float * 3)(), (ctypes.c_int64 * 1)(3)
                self.given = _arrays._DLVersioned(major=major, flags=flags)
                self.given.tensor.data = ctypes.addressof(self.memory)
                self.given.tensor.device_type, self.given.tensor.ndim = 1, 1
                self.given.tensor.code, self.given.tensor.bits = 2, 32
                self.given.tensor.lanes, self.given.tensor.shape = 1, self.shape

            def __dlpack__(self, *, stream=None, max_version=None):
                assert max_version >= (1, 0)
                new = ctypes.pythonapi.PyCapsule_New
                new.restype = ctypes.py_object
                new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
                return new(ctypes.addressof(self.given), b"dltensor_versioned", None)

        group, good = czero.Group.self_(), Versioned(0)
        group.broadcast(good)
        with self.assertRaisesRegex(czero.ArgumentError, "array is read-only"):
            group.broadcast(Versioned(1))
        with self.assertRaisesRegex(czero.ArgumentError, "version 2"):
            group.broadcast(Versioned(0, 2))
        of_jax = type("ArrayImpl", (), {"__module__": "jaxlib._jax", "__dlpack__": None})
        with self.assertRaisesRegex(czero.ArgumentError, "JAX"):
            group.broadcast(of_jax())
        out = np.zeros(3, np.float32)
        array = np.float32([1, 2, 3])
        array.flags.writeable = False
        model = czero.Model({"x": (np.ones(3, np.float32), None)})
        optim = czero.Optim(model, "sgd", lr=1.0)
        zero = czero.Zero(group, model, "sgd", lr=1.0, gradients="reduced")
        for given in (array, Versioned(1), memoryview(array.tobytes()).cast("f")):
            with self.subTest(type(given)):
                given_memory = getattr(given, "memory", None)
                if given_memory is not None:
                    given_memory[:] = [1, 2, 3]
                group.all_gather(given, out)
                self.assertEqual(out.tolist(), [1, 2, 3])
                model.value("x")[:] = 5
                optim.step(gradients=[given])
                zero.step(gradients=[given])
                self.assertEqual(model.value("x").tolist(), [3, 1, -1])
                with state.Given({"x": given}) as handle:
                    self.assertEqual(state._read(handle)["x"].tolist(), [1, 2, 3])
                for refused in (lambda: group.all_gather(out, given), lambda: model.add("y", given),
                                lambda: optim.step(gradients=[given], max_norm=1.0),
                                lambda: czero.Zero(group, model, "sgd", lr=1.0).step(
                                    gradients=[given])):
                    with self.assertRaisesRegex(czero.ArgumentError, "read-only"):
                        refused()
        group.all_gather(b"abc", kept := bytearray(3))
        self.assertEqual(kept, b"abc")

    def test_a_rank_that_fails_comes_out_and_the_others_return(self):
        class Own(Exception):
            pass

        heard = []

        def body(group):
            if group.rank == 1:
                raise Own("here")
            try:
                group.barrier()
            except czero.PeerError as error:
                heard.append(str(error))
                raise
        with self.assertRaisesRegex(Own, "here"):
            czero.launch(body, 3)
        self.assertEqual(len(heard), 2)
        self.assertTrue(all("rank 1" in one for one in heard), heard)

    def test_an_exception_in_a_closure_comes_out_and_others_get_its_text(self):
        def body(group):
            model, arrays = make_model()
            zero = czero.Zero(group, model, "sgd", lr=0.1)
            before = arrays["w"][0].copy()

            def closure():
                if group.rank == 1:
                    raise LookupError("no data")
            try:
                zero.step(closure)
            except (LookupError, czero.Error) as error:
                self.same(arrays["w"][0], before)
                fill_gradients(arrays, 0, 0)
                zero.step()  # the group lives on
                return error
        for rank, error in enumerate(czero.launch(body, 3)):
            self.assertIsInstance(error, LookupError if rank == 1 else czero.Error)
            self.assertIn("no data", str(error))

    def test_an_exception_in_a_hook_comes_out(self):
        def body(group):
            model, arrays = make_model()
            ddp = czero.DDP(group, model)

            def hook(bucket):
                if group.rank == 0:
                    raise ValueError("bad bucket")
                bucket.all_reduce()
            ddp.register_hook(hook)
            try:
                with ddp.backward():
                    for name in model.names:
                        ddp.mark_ready(name)
            except Exception as error:
                return error
        mine, other = czero.launch(body, 2)
        self.assertIs(type(mine), ValueError)
        self.assertIn("bad bucket", str(other))
        self.assertIsInstance(other, czero.Error)

    def test_exceptions_in_other_functions_come_out_where_the_user_called(self):
        class Shadowed(czero.Joinable):
            def shadow(self):
                raise KeyError("shadow")

        def then(group):
            model, _ = make_model()
            ddp = czero.DDP(group, model)

            def fails(bucket):
                if group.rank == 1:
                    raise KeyError("then")

            def hook(bucket):
                bucket.all_reduce()
                bucket.then(fails)
            ddp.register_hook(hook)
            with ddp.backward():
                for name in model.names:
                    ddp.mark_ready(name)

        def schedule(group):
            optim = czero.Optim(make_model()[0], "sgd", lr=1.0)
            czero.sched.LambdaLR(optim, lambda epoch: {}[epoch])

        def join(group):
            joinable = Shadowed()
            with czero.Join(group, [joinable]):
                for _ in range(1 + group.rank):
                    joinable.notify()

        def body(group, function):
            try:
                function(group)
            except Exception as error:
                return error
        for function, rank, word in ((then, 1, "then"), (schedule, 0, "0"), (join, 0, "shadow")):
            with self.subTest(word):
                errors = czero.launch(body, 2, arguments=(function,))
                self.assertIs(type(errors[rank]), KeyError)
                self.assertIn(word, str(errors[rank]))
                if function is not schedule:  # which is local
                    self.assertIsInstance(errors[1 - rank], czero.Error)
                    self.assertIn(word, str(errors[1 - rank]))

    def test_arrays_that_one_rank_refuses_are_heard_of_by_all(self):
        two = np.zeros(2)

        def calls(group, bad):
            size = group.size
            part, whole = np.zeros(2), np.zeros(2 * size)
            none = np.zeros(3)  # of no size that fits
            yield lambda: group.broadcast([1.0] if bad else part)
            yield lambda: group.all_reduce(two[::-1] if bad else part)
            yield lambda: group.all_reduce(part, "sun" if bad else "sum")
            yield lambda: group.reduce(part, none if bad else np.zeros(2))
            yield lambda: group.reduce_scatter(whole, none if bad else part)
            yield lambda: group.all_gather(part, none if bad else whole)
            yield lambda: group.gather(part, none if bad else whole)
            yield lambda: group.scatter(none if bad else whole, part)
            yield lambda: group.all_to_all(none if bad else whole, none if bad else whole.copy())

        def body(group):
            for number, one in enumerate(calls(group, group.rank == 1)):
                with self.assertRaises(czero.ArgumentError if group.rank == 1 else czero.Error,
                                       msg=str(number)) as caught:
                    one()
                if group.rank == 1:
                    self.assertNotIn("-1", str(caught.exception))
            if group.rank == 1:
                with self.assertRaisesRegex(czero.ArgumentError, "no array"):
                    group.broadcast("text", wait=False)
            else:
                with self.assertRaises(czero.Error):
                    group.broadcast(np.zeros(1), wait=False).wait()
            one = np.ones(1)
            group.all_reduce(one)  # the group lives on
            self.assertEqual(one[0], group.size)
        for size in (2, 3):
            czero.launch(body, size, timeout=60)

    def test_arrays_of_an_operation_that_nobody_waits_for_live_until_it_has_ended(self):
        begun = threading.Event()

        def body(group):
            if group.rank == 1:
                begun.wait(60)
                group.all_reduce(np.ones(10**5, "f"))
            else:
                values = np.ones(10**5, "f")
                seen = weakref.ref(values)
                group.all_reduce(values, wait=False)
                del values
                gc.collect()
                self.assertIsNotNone(seen())
                begun.set()
            group.barrier()
            group.barrier()
            if group.rank == 0:
                self.assertIsNone(seen())
            if group.rank == 0:  # one that never ends
                group.all_reduce(np.ones(10**5, "f"), wait=False)
        czero.launch(body, 2)

    def test_lists_of_a_wrong_length_are_refused(self):
        model, _ = make_model()
        optim = czero.Optim(model, "sgd", groups=[{"params": ["w"]}, {"params": ["b"]}], lr=0.1,
                            momentum=0.9)
        sched = czero.sched
        for make in (lambda: sched.OneCycleLR(optim, [0.1], 10),
                     lambda: sched.CyclicLR(optim, [0.1], 1.0),
                     lambda: sched.CyclicLR(optim, 0.1, [1.0] * 3),
                     lambda: sched.ReduceLROnPlateau(optim, min_lr=[0.0]),
                     lambda: sched.LambdaLR(optim, [lambda epoch: 1.0] * 3)):
            with self.assertRaisesRegex(czero.ArgumentError, "2 parameter groups"):
                make()
        sched.OneCycleLR(optim, [0.1, 0.2], 10)
        with self.assertRaisesRegex(czero.ArgumentError, "1 milestones for 3 schedulers"):
            sched.SequentialLR([sched.StepLR(optim, 1) for _ in range(3)], [5])

        def weights(group):
            parts = czero.Parts(group, make_model()[0], 2 * group.size)
            for given in ([1.0], [1.0] * 3, []):
                kind = czero.ArgumentError if group.rank == 0 else czero.Error
                with self.assertRaises(kind) as caught:
                    parts.set_weights(given if group.rank == 0 else [1.0, 2.0])
                if group.rank == 0:
                    self.assertIn(f"there are {len(given)} weights", str(caught.exception))
            parts.set_weights([1.0, 3.0])
        czero.launch(weights, 2, timeout=60)

    def test_integers_of_more_than_64_bits_are_refused(self):
        for number in (2**63, -2**63 - 1, 2**127):
            with self.assertRaisesRegex(czero.ArgumentError, "'a/b' is"):
                with state.Given({"a": {"b": number}}):
                    pass
        with state.Given({"a": 2**63 - 1, "b": -2**63}):
            pass

    def test_exceptions_that_cannot_be_told_come_out_all_the_same(self):
        class Silent(Exception):
            status = ["unhashable"]

            def __str__(self):
                raise LookupError

        class Lying(Exception):
            status = "CZ_OK"

        model, arrays = make_model()
        optim = czero.Optim(model, "sgd", lr=0.1)
        for kind in (Silent, Lying):
            def closure():
                raise kind
            fill_gradients(arrays, 0, 0)
            before = arrays["w"][0].copy()
            with self.assertRaises(kind):
                optim.step(closure)
            self.same(arrays["w"][0], before)

    def test_errors_have_the_builtin_type_that_fits(self):
        model, _ = make_model()
        with self.assertRaisesRegex(ValueError, "rate") as caught:
            czero.Optim(model, "adamw", rate=3)
        self.assertEqual(caught.exception.status, "CZ_ERR_ARGUMENT")
        with self.assertRaisesRegex(ValueError, "there is no rule 'adan'"):
            czero.Optim(model, "adan")
        with self.assertRaisesRegex(RuntimeError, "none of 1 trainable parameters has a gradient"):
            empty = czero.Model({"a": np.zeros(2, np.float32)})
            czero.Optim(empty, "sgd", lr=1).step()
        with self.assertRaisesRegex(ValueError, "partition is one of elements"):
            czero.Zero(czero.Group.self_(), model, partition="halves")
        with self.assertRaises(KeyError):
            model.set_requires_grad("none", True)
        pair = czero.Optim(model, "sgd", lr=1.0), make_model()[0]
        schedule = czero.sched.StepLR(pair[0], 1)
        pair[0].close()
        with self.assertRaisesRegex(RuntimeError, "Optim is closed"):
            schedule.step()
        closed = czero.Optim(pair[1], "sgd", lr=1)
        pair[1].close()
        with self.assertRaisesRegex(RuntimeError, "Model is closed"):
            closed.step()
        closed = czero.Optim(model, "sgd", lr=1)
        closed.close()
        closed.close()
        with self.assertRaisesRegex(RuntimeError, "closed"):
            closed.step()

        def differ(group):
            with self.assertRaises(czero.MismatchError):
                czero.Zero(group, make_model()[0], "sgd", lr=0.1 + group.rank)
        czero.launch(differ, 2)

    def test_a_late_rank_is_a_timeout(self):
        def body(group):
            if group.rank == 0:
                with self.assertRaises(TimeoutError):
                    group.barrier()
            else:
                time.sleep(1.5)
        czero.launch(body, 2, timeout=0.3)


def exchange_by_files(folder, rank, size):
    """What Group.connect() wants, by files in a folder."""
    calls = iter(range(1000))

    def exchange(data):
        call = next(calls)
        pathlib.Path(folder, f".{rank}").write_bytes(data)
        pathlib.Path(folder, f".{rank}").rename(pathlib.Path(folder, f"{call}-{rank}"))
        found = []
        for other in range(size):
            while not (path := pathlib.Path(folder, f"{call}-{other}")).exists():
                time.sleep(0.001)
            found.append(path.read_bytes())
        return found
    return exchange


def of_processes(folder, rank, size, results, apart):
    if apart:  # as on a machine of its own
        _mesh._machine = lambda: f"machine {rank}"
    group = czero.Group.connect(rank, size, exchange_by_files(folder, rank, size), 60)
    values, state = train(group)
    big = np.full(2_000_000, rank + 1.0)
    group.all_reduce(big)
    half = group.split(rank % 2, -rank)  # messages alone
    long = np.full(300_000, rank, np.float32)
    half.broadcast(long, 0)
    try:
        if rank == 1:
            os._exit(5)
        group.barrier()
    except czero.PeerError as error:
        results.put((rank, values["w"].tobytes(), float(big[-1]), float(long[-1]), str(error)))


class Processes(Bits):
    def test_processes_that_find_each_other(self):
        self.run_them(False)

    def test_processes_of_several_machines(self):
        self.run_them(True)

    def run_them(self, apart):
        context, size = multiprocessing.get_context("spawn"), 3
        results = context.Queue()
        with tempfile.TemporaryDirectory() as folder:
            processes = [context.Process(target=of_processes, args=(folder, rank, size, results,
                                                                   apart))
                         for rank in range(size)]
            for process in processes:
                process.start()
            found = sorted(results.get(timeout=100) for _ in range(2))
            for process in processes:
                process.join(60)
        self.assertEqual([process.exitcode for process in processes], [0, 5, 0])
        wanted = train_alone()[0]["w"].tobytes()
        self.assertEqual([one[:4] for one in found], [(0, wanted, 6.0, 2.0), (2, wanted, 6.0, 2.0)])
        for one in found:
            self.assertIn("rank 1 left: its process has ended", one[4])


class Meeting(Bits):
    """Processes that find each other, as threads of one."""

    def connect(self, size, body):
        given, meet = [None] * size, threading.Barrier(size)
        results = [None] * size

        def exchange_of(rank):
            def exchange(data):
                meet.wait(60)
                given[rank] = data
                meet.wait(60)
                return list(given)
            return exchange

        def run(rank):
            try:
                with czero.Group.connect(rank, size, exchange_of(rank), 60) as group:
                    results[rank] = body(group)
            except BaseException as error:
                results[rank] = error
                meet.abort()
        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(100)
        return results

    @staticmethod
    def total(group):
        one = np.full(3, group.rank + 1.0)
        group.all_reduce(one)
        return one[0]

    def test_somebody_who_connects_and_says_nothing_is_left(self):
        silent, listen = [], _mesh._listen

        def listening(*arguments):
            listener, place = listen(*arguments)
            silent.append(socket.create_connection(listener.getsockname()))
            return listener, place
        with mock.patch.object(_mesh, "_listen", listening), \
                mock.patch.object(_mesh, "HELLO_SECONDS", 0.1):
            self.assertEqual(self.connect(2, self.total), [3.0, 3.0])
        for one in silent:
            one.close()

    def test_without_shared_memory_they_have_messages(self):
        def refuse(*_):
            raise OSError("no")
        for name in ("memfd_create", "ftruncate"):
            with mock.patch.object(os, name, refuse):
                self.assertEqual(self.connect(3, self.total), [6.0] * 3)

    def test_ctrl_c_in_a_function_of_the_backend_waits_for_its_end(self):
        done, before = [], signal.signal(signal.SIGINT, _mesh.on_interrupt)

        @_mesh._entry
        def whole():
            signal.raise_signal(signal.SIGINT)
            done.append(True)
        try:
            whole()
            self.assertEqual(done, [True])
            with self.assertRaises(KeyboardInterrupt):
                czero.Group.self_()
            with self.assertRaises(KeyboardInterrupt):  # elsewhere it is as ever
                signal.raise_signal(signal.SIGINT)
            czero.Group.self_()
        finally:
            signal.signal(signal.SIGINT, before)


class Life(unittest.TestCase):
    def test_python_runs_while_a_rank_waits(self):
        """With the interpreter's lock held in the barrier this would wait for ever."""
        arrived = threading.Event()

        def body(group):
            if group.rank == 1:
                arrived.wait(60)
            else:
                threading.Timer(0.05, arrived.set).start()
            group.barrier()
        czero.launch(body, 2)

    def test_objects_keep_alive_what_they_need_and_nothing_leaks(self):
        gc.collect()

        def body(group):
            model, arrays = make_model()
            zero = czero.Zero(group, model, "adamw")
            gradient = weakref.ref(arrays["w"][1])
            fill_gradients(arrays, 0, 0)
            del model, arrays
            gc.collect()
            self.assertIsNotNone(gradient())
            zero.step()
            del zero
            self.assertIsNone(gradient())
        for _ in range(20):
            czero.launch(body, 2)
        kinds = range(len(c.ENUMS["cz_memory_kind"]))
        before = [lib.cz_memory_bytes(kind) for kind in kinds]
        objects = len(gc.get_objects())
        for _ in range(200):
            czero.launch(body, 2)
        gc.collect()
        self.assertEqual([lib.cz_memory_bytes(kind) for kind in kinds], before)
        self.assertLess(len(gc.get_objects()) - objects, 100)

    def test_what_was_made_on_a_group_ends_with_it_in_whatever_order(self):
        kept = []

        def body(group):
            model, arrays = make_model()
            zero = czero.Zero(group, model, "adamw")
            work = group.barrier(wait=False)
            work.wait()
            kept.append((zero, work))
            if group.rank == 0:
                raise LookupError  # whose traceback keeps all of these
        with self.assertRaises(LookupError) as caught:
            czero.launch(body, 2)
        for zero, work in kept:
            with self.assertRaisesRegex(RuntimeError, "closed"):
                zero.step()
            work.close()
        del kept[:], caught
        group = czero.Group.self_()
        model, arrays = make_model()
        zero = czero.Zero(group, model, "adamw")
        zero.itself, group.zero = zero, zero
        del group, zero, model
        gc.collect()

    def script(self, code, **options):
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                              timeout=120, **options)

    def test_what_is_collected_in_a_function_that_the_library_calls_ends_after_it(self):
        order = []

        @_library.called
        def inside():
            _library._destroy(lambda _: order.append("end"), _library.Held(None), None)
            czero.Group.self_()
            order.append("callback")
        inside()
        czero.Group.self_()
        self.assertEqual(order, ["callback", "end"])
        done = self.script("""
import czero, gc, numpy as np
def body(group):
    model = czero.Model({"a": (np.ones(3), np.ones(3))})
    old = [group.split(0)]
    old.append(czero.Zero(old[0], czero.Model({"b": (np.ones(3), np.ones(3))}), "sgd", lr=1.0))
    old[0].itself = old
    ddp = czero.DDP(group, model)
    def hook(bucket):
        old.clear()
        gc.collect()
        bucket.all_reduce("average")
    ddp.register_hook(hook)
    with ddp.backward():
        ddp.mark_ready("a")
czero.launch(body, 2)
""")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_a_child_of_fork_may_end_and_begin_anew(self):
        code = """
import os, numpy as np, czero
group = czero.Group.threads(2)[0]
model = czero.Model({"a": (np.ones(3), np.ones(3))})
optim = czero.Optim(model, "sgd", lr=1.0)
child = os.fork()
if child == 0:
    try:
        group.barrier()
    except czero.StateError:
        pass
    total = czero.launch(lambda g: g.size, 2)
    os._exit(0 if total == [2, 2] else 1)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
        done = self.script(code)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_workers_of_multiprocessing_by_fork_and_spawn(self):
        code = """
import multiprocessing, czero, numpy as np
def work(x):
    return czero.launch(lambda group: group.size + x, 2)
if __name__ == "__main__":
    group = czero.Group.self_()
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(2) as pool:
            assert pool.map(work, [1, 2]) == [[3, 3], [4, 4]]
    group.barrier()
"""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "main.py")
            path.write_text(code)
            done = subprocess.run([sys.executable, path], capture_output=True, text=True,
                                  timeout=120)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_the_interpreter_ends_whatever_is_open(self):
        done = self.script("""
import numpy as np, czero, sys
groups = czero.Group.threads(2)
model = czero.Model({"a": (np.ones(3), np.ones(3))})
optim = czero.Optim(model, "sgd", lr=1.0)
work = groups[0].barrier(wait=False)
sched = czero.sched.LambdaLR(optim, lambda t: 1.0)
model.me = optim.me = sched.me = model      # a cycle that only the end finds
sys.modules["kept"] = (groups, optim)
""")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_ctrl_c_ends_all_ranks(self):
        code = """
import czero, sys, time
def body(group):
    if group.rank == 0:
        print("ready", flush=True)
    group.barrier()
    while True:
        time.sleep(0.01)
try:
    czero.launch(body, 2)
except KeyboardInterrupt:
    sys.exit(17)
"""
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)  # where it does not end by itself
        self.assertEqual(process.stdout.readline(), "ready\n")
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.wait(60), 17)
        process.stdout.close()

    def test_ctrl_c_is_for_ranks_that_run(self):
        code = """
import ctypes, czero, os, signal, sys, threading, time
told, ended, raising = [], threading.Event(), ctypes.pythonapi.PyThreadState_SetAsyncExc
def tell(ident, kind):
    told.append(ident.value)
    return raising(ident, kind)
ctypes.pythonapi.PyThreadState_SetAsyncExc = tell
def body(group):
    if group.rank == 0:
        ended.set()
        return
    ended.wait()
    time.sleep(0.3)
    body.ident = threading.get_ident()
    os.kill(os.getpid(), signal.SIGINT)
    while True:
        time.sleep(0.01)
try:
    czero.launch(body, 2)
except KeyboardInterrupt:
    sys.exit(17 if told == [body.ident] else f"{told} were told")
"""
        done = self.script(code)
        self.assertEqual((done.returncode, done.stderr), (17, ""))

    def test_ctrl_c_ends_a_wait_for_another_process(self):
        code = """
import czero, os, signal, socket, sys, time
here, there = socket.socketpair()
rank = 0 if (child := os.fork()) else 1
end = [here, there][rank]
def exchange(data):
    end.sendall(len(data).to_bytes(4, "little") + data)
    count = int.from_bytes(end.recv(4, socket.MSG_WAITALL), "little")
    other = end.recv(count, socket.MSG_WAITALL) if count else b""
    return [data, other][::-1 if rank else 1]
group = czero.Group.connect(rank, 2, exchange)
group.barrier()
if rank == 1:
    end.recv(1)     # never comes to the barrier
    os._exit(0)
print("ready", flush=True)
try:
    group.barrier()
except KeyboardInterrupt:
    end.sendall(b"1")
    os.waitpid(child, 0)
    sys.exit(17)
"""
        process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)  # where it does not end by itself
        self.assertEqual(process.stdout.readline(), "ready\n")
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        try:
            _, told = process.communicate(timeout=60)
        finally:
            process.kill()
        self.assertEqual((process.returncode, told), (17, ""))

    @unittest.skipUnless(os.environ.get("CZERO_TOOL"), "without the tool")
    def test_the_command(self):
        done = subprocess.run([sys.executable, "-m", "czero", "--version"], capture_output=True,
                              text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(czero.__version__, done.stdout)


class Closing(unittest.TestCase):
    """What a call uses does not end before it, whoever closes it."""

    def test_in_a_step_of_its_own(self):
        def run(group, what):
            model = czero.Model({"a": (np.ones(100000, np.float32), np.ones(100000, np.float32))})
            zero = czero.Zero(group, model, "adamw", lr=0.1)

            def closure():
                {"zero": zero, "model": model}[what].close()
                return 1.0
            self.assertEqual(zero.step(closure).loss, 1.0)
            with self.assertRaisesRegex(czero.StateError, "closed"):
                zero.step()
            return float(model.value("a")[0]) if what == "zero" else None
        for what in ("zero", "model"):
            for ranks in (1, 2, 3):
                found = czero.launch(run, ranks, arguments=(what,), timeout=20)
                self.assertEqual(len(set(found)), 1)

    def test_by_another_thread_during_a_step(self):
        code = """
import czero, numpy as np, sys, threading
def run(group, what):
    model = czero.Model({"a": (np.ones(100000, np.float32), np.ones(100000, np.float32))})
    zero = czero.Zero(group, model, "adamw", lr=0.1)
    inside, closed = threading.Event(), threading.Event()
    def close():
        inside.wait()
        {"zero": zero, "model": model, "group": group}[what].close()
        closed.set()
    closer = threading.Thread(target=close)
    closer.start()
    zero.step(lambda: (inside.set(), closed.wait(), 1.0)[2])
    try:
        zero.step()
    except czero.StateError:
        pass
    else:
        sys.exit("not closed")
    closer.join()
for ranks in (1, 2):
    for what in ("zero", "model"):
        czero.launch(run, ranks, arguments=(what,), timeout=20)
for what in ("zero", "model", "group"):
    run(czero.Group.self_(), what)
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                              timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_a_bucket_ends_with_its_pass(self):
        code = """
import czero, numpy as np, sys
kept = []
def run(group, how):
    ddp = czero.DDP(group, czero.Model({"a": (np.ones(4, np.float32), np.ones(4, np.float32))}))
    def hook(bucket):
        bucket.all_reduce("average")
        bucket.then(lambda same: same.buffer[:1])
        kept.append(bucket)
    ddp.register_hook(hook)
    ddp.begin()
    ddp.mark_ready("a")
    if how == "closed":
        ddp.close()
    else:
        getattr(ddp, how)()
    refuses()
def refuses():
    for use in (lambda one: one.buffer, lambda one: one.params, lambda one: one.rank,
                lambda one: one.reduce(), lambda one: one.memory("f32", 1),
                lambda one: one.all_reduce(), lambda one: one.then(print)):
        try:
            use(kept[-1])
        except czero.StateError as error:
            assert "pass" in str(error), error
        else:
            sys.exit("used")
for how in ("finish", "abandon", "closed"):
    czero.launch(run, 1, arguments=(how,))
    refuses()
"""
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                              timeout=60)
        self.assertEqual((done.returncode, done.stderr), (0, ""))


class Limits(unittest.TestCase):
    """What ctypes would change without a word."""

    def refused(self, text, function, *arguments, **named):
        with self.assertRaisesRegex(czero.ArgumentError, text):
            function(*arguments, **named)

    def test_whole_numbers_that_c_cannot_hold_are_refused(self):
        group, (model, _) = czero.Group.self_(), make_model()
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = czero.Checkpoint(group, folder, model=model)
            self.refused("step .* is 18446744073709551621; .* to 9223372036854775807",
                         checkpoint.save, 2**64 + 5)
            self.refused("keep", czero.Checkpoint, group, folder, model=model, keep=2**32 + 2)
        self.refused("argument 2 of cz_group_split.* is 4294967296; .* -2147483648 to 2147483647",
                     group.split, 2**32)
        self.refused(r"ranks\[1\] is 4294967296", group.subset, [0, 2**32])
        self.refused("size is", czero.Group.threads, 2**32 + 2)
        self.refused("ranks", czero.launch, lambda group: group.size, 2**32 + 2)
        self.refused("threads", czero.Optim, model, "sgd", lr=0.1, threads=2**32 + 1)
        self.refused("owners", czero.Zero, group, model, "sgd", lr=0.1, partition="given",
                     owners=[2**32] * 4)
        self.refused("the shape of 'a'", czero.plan, {"a": ("f32", (2**65,))}, 2)
        self.refused("bucket_bytes .* is -1; .* from 0", czero.plan, model, bucket_bytes=-1)
        self.refused("world_size", czero.plan, model, 2**32 + 1)
        optim = czero.Optim(model, "sgd", lr=0.1)
        self.refused("argument", czero.sched.StepLR, optim, 2**64 + 1)
        self.refused("milestones", czero.sched.MultiStepLR, optim, [1, 2**64 + 2])
        czero.sched.StepLR(optim, np.int64(3))

    def test_all_ranks_hear_of_a_number_or_label_that_one_was_refused(self):
        def run(group):
            wrong = 2**32 if group.rank == 1 else 0
            with self.assertRaises(czero.Error):
                group.broadcast(np.zeros(3, np.float32), wrong)
            with self.assertRaises(czero.Error):
                group.barrier(label="a\0b") if group.rank == 1 else group.all_reduce(
                    np.zeros(2, np.float32))
            return True
        self.assertEqual(czero.launch(run, 2, timeout=20), [True, True])

    def test_texts_with_nul_are_refused(self):
        group, (model, _) = czero.Group.self_(), make_model()
        some = np.zeros(4, np.float32)
        self.refused(r"'a\\x00b'; texts have no NUL", czero.Model, {"a\0b": some})
        self.refused("NUL", model.add_flat, some, None, {"a\0b": 4})
        self.refused("NUL", czero.Checkpoint, group, "folder\0", model=model)
        self.refused("NUL", czero.Optim, model, "sgd\0x", lr=0.1)
        self.refused("NUL", czero.Optim, model, "sgd", **{"lr\0": 0.1})
        with tempfile.TemporaryDirectory() as folder:
            checkpoint = czero.Checkpoint(group, folder, model=model)
            for common in ({"k\0ey": 1}, {"text": "x\0y"}, {"texts": ["x", "x\0y"]}):
                self.refused("NUL", checkpoint.save, 1, common=common)
            checkpoint.save(1)
            with czero.Archive(folder) as archive:
                self.assertNotIn("b\0", archive)
                with self.assertRaises(KeyError):
                    archive["b\0"]
        with self.assertRaises(KeyError):
            model.index("b\0")

    def test_bytes_are_broadcast_from_what_is_bytes_and_from_no_text(self):
        with self.assertRaises(TypeError):
            czero.Group.self_().broadcast_bytes("hello")
        for given in (b"hel\0lo", bytearray(b"hel\0lo"), memoryview(b"ohlle\0h")[::-1][:0:-1],
                      memoryview(b"hel\0lo")):
            wanted = bytes(given)
            got = czero.launch(
                lambda group: group.broadcast_bytes(given if group.rank == 1 else b"", 1), 2)
            self.assertEqual(got, [wanted, wanted])

    def test_scalars_of_numpy_are_numbers_in_a_dictionary(self):
        given = {"int": np.int64(-3), "single": np.float32(0.1), "double": np.float64(0.1),
                 "flag": np.bool_(True), "unsigned": np.uint8(200)}
        with state.Given(given) as handle:
            found = state._read(handle)
        self.assertEqual(found, {name: value.item() for name, value in given.items()})
        self.assertEqual([type(value) for value in found.values()], [int, float, float, int, int])
        with self.assertRaises(czero.ArgumentError):
            state.Given({"large": np.uint64(2**63)}).__enter__()

    def test_betas_are_two_numbers(self):
        for wrong in ((1,), (0.9, 0.99, 0.999), 0.9):
            self.refused("betas are two numbers, not", czero.Optim, make_model()[0], "adamw",
                         lr=0.1, betas=wrong)

    def test_an_exception_with_nul_in_its_text_is_told(self):
        def run(group):
            raise ValueError("half\0of it")
        with self.assertRaisesRegex(ValueError, "half"):
            czero.launch(run, 2)


if __name__ == "__main__":
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as in jobs of shells; children inherit it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    unittest.main()
