# SPDX-License-Identifier: MIT
"""HostOptimizer: the bits of the library's optimizer that steps after the backward pass, whatever
arrives when; what is put back; state; ranks. On a GPU where there is one, else with a device that
is made up."""
import copy
import gc
import itertools
import math
import threading
import time
import unittest
import warnings

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

import czero
import czero.torch
from czero.torch import HostOptimizer, host, transfers
from ranks import Ranks

SHAPES = [(300, 70), (5,), (0, 3), (129, 33), ()]
TYPES = [torch.float32, torch.bfloat16]


def make(dtype, device="cpu"):
    torch.manual_seed(3)
    return [torch.randn(shape).to(device, dtype).requires_grad_() for shape in SHAPES]


def gradients(step, dtype, large=False):
    torch.manual_seed(100 + step)
    return [(torch.randn(shape) * (1 if large else 1e-3)).to(dtype) for shape in SHAPES]


def backward(params, grads, skip=()):
    """The gradient of each parameter is exactly the given one."""
    terms = [(param * grad.to(param.device)).sum().float()
             for place, (param, grad) in enumerate(zip(params, grads))
             if place not in skip and param.requires_grad]
    sum(terms).backward()


class Twin:
    """The library's own optimizer over copies, which steps as a whole."""

    def __init__(self, params, rule="adamw", **options):
        self.values = [param.detach().cpu().clone() for param in params]
        self.model = czero.Model()
        for place, value in enumerate(self.values):
            self.model.add(str(place), host._view(value))
        if rule in ("adam", "adamw", "nadam"):  # as this PyTorch writes the first moment
            options["lerp"] = float(torch.__version__.split(".")[0]) > 1
        self.optim = czero.Optim(self.model, rule, threads=1, **options)

    def step(self, grads, skip=(), **options):
        self.kept = [grad.clone() for grad in grads]
        views = [None if place in skip else host._view(grad)
                 for place, grad in enumerate(self.kept)]
        for view in views:
            if view is not None and view.count == 0:
                view.address = 64  # NULL says that there is none
        return self.optim.step(gradients=views, **options)


def same(params, twin):
    for place, (param, value) in enumerate(zip(params, twin.values)):
        assert torch.equal(param.detach().cpu(), value), place


def same_state(optimizer, twin):
    found = optimizer.state_dict()["state"]
    wanted = twin.optim.state_dict()["state"]
    for place in range(len(SHAPES)):
        if str(place) not in wanted:
            assert place not in found, place
            continue
        for name, value in wanted[str(place)].items():
            if name == "step":
                assert found[place]["step"].item() == value
            elif getattr(value, "shape", None) is not None:
                mine = found[place][name]
                assert mine.shape == SHAPES[place]
                assert torch.equal(mine, torch.as_tensor(value).view(mine.shape)), (place, name)
            else:
                assert math.isclose(found[place][name].item(), value, rel_tol=1e-6)


class Late(transfers.Transfers):
    """A device in memory of the host, which copies when it likes."""

    early = True

    def to_host(self, home, tensor):
        event = threading.Event()
        event.synchronize = event.wait

        def run():
            time.sleep(0.002)
            with torch.no_grad():
                home.copy_(tensor)
            event.set()
        threading.Thread(target=run).start()
        return event


class Elsewhere(HostOptimizer):
    """All parameters are on such a device."""

    def _way(self, param):
        return Late()

    def _mark(self, place, param):
        gradient = param.grad.detach()
        there = self._steps.gradient_buffer(place, self._ways[place])
        event = self._ways[place].to_host(there, gradient)
        self._marked.add(place)
        self._kept[place] = there
        self._addresses[place] = there.data_ptr() or None
        self._steps.mark(place, self._addresses[place], event)


def train(kind, dtype, device="cpu", rule="adamw", max_norm=5.0, twin_rule=None, **options):
    """Steps that are clipped in turns, one that is skipped, a parameter without gradient, one that
    is frozen, a rate that changes."""
    params = make(dtype, device)
    twin = Twin(params, twin_rule or rule, lr=0.01)
    optimizer = kind(params, rule, lr=0.01, max_norm=max_norm, skip_nonfinite=max_norm is not None,
                     **options)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    for step in range(6):
        grads = gradients(step, dtype, large=step % 3 == 1)
        if step == 4 and max_norm is not None:
            grads[3][7, 7] = math.inf
        skip = (1,) if step == 2 else ()
        params[3].requires_grad_(step != 5)
        twin.model.set_requires_grad(3, step != 5)
        optimizer.zero_grad(set_to_none=True)
        backward(params, grads, skip)
        loss = optimizer.step(lambda: 7) if step == 3 else optimizer.step()
        assert loss == (7 if step == 3 else None)
        schedule.step()
        wanted = twin.step(grads, skip + ((3,) if step == 5 else ()), norm=max_norm is not None,
                           max_norm=max_norm or 0, skip_nonfinite=max_norm is not None)
        twin.optim.param_groups[0]["lr"] = optimizer.param_groups[0]["lr"]
        assert optimizer.norm == wanted.norm or math.isnan(wanted.norm)
        assert optimizer.skipped == wanted.skipped == (step == 4 and max_norm is not None)
        same(params, twin)
        same_state(optimizer, twin)
    return optimizer


class Steps(unittest.TestCase):
    def test_the_bits_of_steps_after_the_backward_pass(self):
        for dtype, max_norm in itertools.product(TYPES, (5.0, None)):
            with self.subTest(dtype=dtype, max_norm=max_norm):
                train(HostOptimizer, dtype, max_norm=max_norm)
        train(HostOptimizer, torch.float64)
        train(HostOptimizer, torch.bfloat16, overlap=False)
        train(HostOptimizer, torch.bfloat16, undo_bytes=4096)
        train(HostOptimizer, torch.bfloat16, threads=2)

    def test_classes_and_other_rules(self):
        train(HostOptimizer, torch.float32, rule=torch.optim.AdamW, twin_rule="adamw")
        train(HostOptimizer, torch.bfloat16, rule="lion")
        train(HostOptimizer, torch.float32, rule="nadam")
        train(HostOptimizer, torch.float32, rule="lamb")

    def test_a_device_whose_copies_take_their_time(self):
        for dtype, max_norm in itertools.product(TYPES, (5.0, None)):
            with self.subTest(dtype=dtype, max_norm=max_norm):
                train(Elsewhere, dtype, max_norm=max_norm)

    @unittest.skipUnless(torch.cuda.is_available(), "there is no GPU")
    def test_a_gpu(self):
        for dtype, max_norm, free in itertools.product(TYPES, (5.0, None), (False, True)):
            with self.subTest(dtype=dtype, max_norm=max_norm, free=free):
                train(HostOptimizer, dtype, "cuda", max_norm=max_norm, free_gradients=free)

    def test_updates_begin_in_the_backward_pass(self):
        params = make(torch.bfloat16)
        optimizer = HostOptimizer(params, "adamw", lr=0.1, max_norm=1e6)
        before = [param.detach().clone() for param in params]
        backward(params, gradients(0, torch.bfloat16))
        end = time.monotonic() + 60
        while torch.equal(params[0], before[0]) and time.monotonic() < end:
            time.sleep(0.001)
        self.assertFalse(torch.equal(params[0], before[0]))
        optimizer.step()

    def test_memory_that_is_not_in_order_and_values_that_move(self):
        params = make(torch.float32)
        params[0] = torch.randn(70, 300).t().detach().requires_grad_()
        twin = Twin([param.detach().contiguous() for param in params], lr=0.01)
        optimizer = HostOptimizer(params, "adamw", lr=0.01)
        for step in range(4):
            grads = gradients(step, torch.float32)
            if step == 2:  # somewhere else, and something else
                params[3].data = params[3].data.clone() + 1
                twin.values[3] += 1
            if step == 3:
                with torch.no_grad():
                    params[0].mul_(0.5)
                twin.values[0].mul_(0.5)
            optimizer.zero_grad()
            backward(params, grads)
            optimizer.step()
            twin.step(grads)
            same(params, twin)


class Passes(unittest.TestCase):
    def setUp(self):
        self.params = make(torch.bfloat16)
        self.grads = gradients(0, torch.bfloat16, large=True)

    def optimizer(self, **options):
        return HostOptimizer(self.params, "adamw", lr=0.01, **options)

    def summed(self):
        return [grad + grad for grad in self.grads]

    def test_gradients_add_up(self):
        twin, optimizer = Twin(self.params, lr=0.01), self.optimizer(max_norm=1.0)
        with optimizer.accumulate():
            backward(self.params, self.grads)
        backward(self.params, self.grads)
        optimizer.step()
        twin.step(self.summed(), max_norm=1.0)
        same(self.params, twin)

    def test_a_second_pass_that_nobody_spoke_of(self):
        twin, optimizer = Twin(self.params, lr=0.01), self.optimizer(max_norm=1.0)
        backward(self.params, self.grads)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            backward(self.params, self.grads)
        self.assertTrue(any("accumulate" in str(one.message) for one in caught))
        optimizer.step()
        twin.step(self.summed(), max_norm=1.0)
        same(self.params, twin)
        optimizer.zero_grad()
        backward(self.params, self.grads)
        optimizer.step()
        twin.step(self.grads, max_norm=1.0)
        same(self.params, twin)

    def test_a_second_pass_is_refused_where_nothing_is_put_back(self):
        optimizer = self.optimizer()
        backward(self.params, self.grads)
        with self.assertRaisesRegex(RuntimeError, "accumulate"):
            backward(self.params, self.grads)
        optimizer.step()

    def test_a_step_that_is_not_made_is_put_back(self):
        before = [param.detach().clone() for param in self.params]
        optimizer = self.optimizer(max_norm=math.inf)
        for _ in range(3):
            backward(self.params, self.grads)
            optimizer.zero_grad()
            for param, value in zip(self.params, before):
                self.assertTrue(torch.equal(param, value))
        self.assertEqual(optimizer.state_dict()["state"], {})
        twin = Twin(self.params, lr=0.01)
        backward(self.params, self.grads)
        optimizer.step()
        twin.step(self.grads)
        same(self.params, twin)

    def test_options_that_change_after_the_backward_pass(self):
        twin, optimizer = Twin(self.params, lr=0.02), self.optimizer(max_norm=math.inf)
        backward(self.params, self.grads)
        optimizer.param_groups[0]["lr"] = 0.02
        optimizer.step()
        twin.step(self.grads)
        same(self.params, twin)
        optimizer = self.optimizer()
        backward(self.params, self.grads)
        optimizer.param_groups[0]["lr"] = 0.02
        with self.assertRaisesRegex(RuntimeError, "options"):
            optimizer.step()

    def test_it_ends_in_the_middle(self):
        optimizer = self.optimizer(max_norm=1.0)
        backward(self.params, self.grads)
        optimizer.close()
        with self.assertRaises(czero.StateError):
            optimizer.step()
        optimizer = self.optimizer(max_norm=1.0)
        backward(self.params, self.grads)
        del optimizer
        gc.collect()
        backward(self.params, self.grads)  # its hooks do nothing


class State(unittest.TestCase):
    def steps(self, params, optimizer, first, end):
        for step in range(first, end):
            optimizer.zero_grad()
            backward(params, gradients(step, params[0].dtype, large=step % 2 == 1))
            optimizer.step()

    def test_it_goes_on_elsewhere(self):
        for dtype in TYPES:
            params, others = make(dtype), make(dtype)
            groups = [{"params": params[:2], "lr": 0.02}, {"params": params[2:]}]
            optimizer = HostOptimizer(groups, "adamw", lr=0.01, max_norm=1.0)
            self.steps(params, optimizer, 0, 3)
            kept = copy.deepcopy(optimizer.state_dict())
            with torch.no_grad():
                for one, param in zip(others, params):
                    one.copy_(param)
            groups = [{"params": others[:2]}, {"params": others[2:]}]
            other = HostOptimizer(groups, torch.optim.AdamW, lr=0.5, max_norm=1.0)
            other.load_state_dict(kept)
            self.assertEqual(other.param_groups[0]["lr"], 0.02)
            self.steps(params, optimizer, 3, 5)
            self.steps(others, other, 3, 5)
            for one, param in zip(others, params):
                self.assertTrue(torch.equal(one, param))

    def test_states_of_pytorch_and_back(self):
        params, others = make(torch.float32), make(torch.float32)
        theirs = torch.optim.AdamW(params, lr=0.01)
        self.steps(params, theirs, 0, 3)
        with torch.no_grad():
            for one, param in zip(others, params):
                one.copy_(param)
        mine = HostOptimizer(others, "adamw", lr=0.5)
        mine.load_state_dict(copy.deepcopy(theirs.state_dict()))
        self.steps(params, theirs, 3, 5)
        self.steps(others, mine, 3, 5)
        for one, param in zip(others, params):
            torch.testing.assert_close(one, param, rtol=1e-6, atol=1e-7)
        theirs.load_state_dict(mine.state_dict())
        self.assertEqual(int(theirs.state[params[0]]["step"]), 5)

    def test_what_is_wrong_with_a_state_is_said(self):
        optimizer = HostOptimizer(make(torch.float32), "adamw", lr=0.01)
        given = copy.deepcopy(optimizer.state_dict())
        given["state"] = {0: {"step": 1, "exp_avg": torch.zeros(3)}}
        with self.assertRaises(ValueError):
            optimizer.load_state_dict(given)

    def test_groups_that_are_added(self):
        params, others = make(torch.bfloat16), make(torch.bfloat16)
        optimizer = HostOptimizer(params[:3], "adamw", lr=0.01, max_norm=1.0)
        whole = HostOptimizer([{"params": others[:3]}, {"params": others[3:], "lr": 0.03}],
                              "adamw", lr=0.01, max_norm=1.0)
        for ours, one in ((params, optimizer), (others, whole)):
            backward(ours, gradients(0, torch.bfloat16), skip=(3, 4))
            one.step()
            one.zero_grad()
        optimizer.add_param_group({"params": params[3:], "lr": 0.03})
        self.steps(params, optimizer, 1, 4)
        self.steps(others, whole, 1, 4)
        for one, param in zip(others, params):
            self.assertTrue(torch.equal(one, param))

    def test_what_is_refused(self):
        params = make(torch.float32)
        for arguments, options in (((torch.optim.LBFGS,), {}), (("adamw",), dict(shard=True))):
            with self.assertRaises(ValueError):
                HostOptimizer(params, *arguments, lr=0.1, **options)
        with self.assertRaises(ValueError):
            HostOptimizer([torch.zeros(3, dtype=torch.complex64, requires_grad=True)], lr=0.1)
        with self.assertRaisesRegex(ValueError, "no rule 'none'"):
            HostOptimizer(params, "none", lr=0.1)
        with self.assertRaises(TypeError):
            copy.deepcopy(HostOptimizer(params, lr=0.1))


# ---- ranks ----

def ranks_have_parts(rank, size):
    """Each has other parameters; the norm is that of all."""
    for dtype in TYPES:
        params, twin = make(dtype), Twin(make(dtype), lr=0.01)
        mine = [param for place, param in enumerate(params) if place % size == rank]
        optimizer = HostOptimizer(mine, "adamw", lr=0.01, max_norm=1.0, group=dist.group.WORLD)
        for step in range(4):
            grads = gradients(step, dtype, large=step % 2 == 0)
            optimizer.zero_grad()
            backward(mine, [grad for place, grad in enumerate(grads) if place % size == rank])
            optimizer.step()
            wanted = twin.step(grads, max_norm=1.0)
            assert optimizer.norm == wanted.norm
            for place, param in enumerate(params):
                assert place % size != rank or torch.equal(param, twin.values[place]), place
    optimizer.max_norm = 1.0 + rank
    before = [param.detach().clone() for param in mine]
    optimizer.zero_grad()
    backward(mine, [grad for place, grad in enumerate(grads) if place % size == rank])
    try:
        optimizer.step()
    except czero.MismatchError as error:
        assert "max_norm" in str(error)
    else:
        raise AssertionError("ranks differ")
    assert all(torch.equal(one, param) for one, param in zip(before, mine))


def ranks_share(rank, size):
    """All have the same parameters, and of each the state is on one."""
    for dtype, max_norm in ((torch.float32, 1.0), (torch.bfloat16, None)):
        params, twin = make(dtype), Twin(make(dtype), lr=0.01)
        optimizer = HostOptimizer(params, "adamw", lr=0.01, max_norm=max_norm,
                                  group=dist.group.WORLD, shard=True)
        for step in range(4):
            grads = gradients(step, dtype, large=step % 2 == 0)
            optimizer.zero_grad()
            backward(params, grads)
            optimizer.step()
            twin.step(grads, max_norm=max_norm or 0)
            same(params, twin)
        assert 0 < len(optimizer.state_dict()["state"]) < len(SHAPES) or size == 1
        optimizer.close()


def ranks_with_ddp(rank, size):
    torch.manual_seed(rank)
    model = DDP(torch.nn.Sequential(torch.nn.Linear(20, 50), torch.nn.Linear(50, 1)))
    twin = Twin(model.parameters(), lr=0.01)
    optimizer = HostOptimizer(model.parameters(), "adamw", lr=0.01, max_norm=0.1,
                              group=dist.group.WORLD, shard=True)
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.randn(4, 20)).sum().backward()
        grads = [param.grad.clone() for param in model.parameters()]
        optimizer.step()
        twin.step(grads, max_norm=0.1)
        same(model.parameters(), twin)


def ranks_with_fsdp(rank, size):
    try:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard
    except ImportError:
        return False
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(20, 51), torch.nn.Linear(51, 1)).bfloat16()
    plain = copy.deepcopy(model)
    fully_shard(model, mesh=init_device_mesh("cpu", (size,)))
    try:
        HostOptimizer(model.parameters(), "adamw", lr=0.01, max_norm=0.1)
    except ValueError as error:
        assert "group" in str(error)
    else:
        raise AssertionError("the norm of a part")
    optimizer = HostOptimizer(model.parameters(), "adamw", lr=0.01, max_norm=0.1,
                              group=dist.group.WORLD)
    begun = [0]
    mark = optimizer._steps.mark
    optimizer._steps.mark = lambda *given: (begun.__setitem__(0, begun[0] + 1), mark(*given))
    twin = Twin(plain.parameters(), lr=0.01)
    for step in range(3):
        torch.manual_seed(10 * step)
        x = torch.randn(4, 20, dtype=torch.bfloat16)
        optimizer.zero_grad()
        model(x).sum().backward()
        assert begun[0] == 4 * (step + 1), begun  # in the backward pass
        grads = [param.grad.full_tensor() for param in model.parameters()]
        optimizer.step()
        twin.step(grads, max_norm=0.1)
        same([param.full_tensor() for param in model.parameters()], twin)
    return True


class OnRanks(unittest.TestCase):
    def test_ranks(self):
        for size in (2, 3):
            ranks = Ranks(size)
            try:
                for function in (ranks_have_parts, ranks_share, ranks_with_ddp, ranks_with_fsdp):
                    with self.subTest(function=function.__name__, size=size):
                        ranks.run(function)
            finally:
                ranks.end()


if __name__ == "__main__":
    unittest.main()
