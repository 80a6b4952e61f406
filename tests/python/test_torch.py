# SPDX-License-Identifier: MIT
"""The drop-in for PyTorch's ZeroRedundancyOptimizer, beside PyTorch's: what its own tests look at
(one rank and several), and what they do not. The oracle is PyTorch in the same process."""
import copy
import gc
import os
import tempfile
import unittest
import warnings
import weakref

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import (allreduce_hook,
                                                                       fp16_compress_hook)
from torch.distributed.algorithms.join import Join, Joinable, JoinHook
from torch.distributed.optim import ZeroRedundancyOptimizer as Theirs
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.optim import SGD, Adam, AdamW

import czero
import czero.torch
from czero.torch import (ZeroRedundancyOptimizer, hook_with_zero_step,
                         hook_with_zero_step_interleaved, shard)
from ranks import Ranks

warnings.filterwarnings("ignore", category=UserWarning)
ALL = [("SGD", dict(lr=1e-2)), ("SGD", dict(lr=1e-2, momentum=0.9, nesterov=True)),
       ("Adam", dict(maximize=True)), ("AdamW", dict(amsgrad=True)), ("Adamax", {}),
       ("Adadelta", {}), ("Adagrad", {}), ("RMSprop", dict(momentum=0.5, centered=True)),
       ("Rprop", {}), ("NAdam", {}), ("RAdam", {})]


class SGDWithStepKWArg(SGD):
    def step(self, closure=None, kwarg=None):
        super().step()
        kwarg.append(5)


class SGDWithNewKey(SGD):
    def step(self, closure=None):
        super().step()
        self.param_groups[0]["new_key"] = 0.1


class SGDWithoutClosure(SGD):
    def step(self):
        return super().step()


class Scheduled(Adam):
    """A user's own class, which does not run in kernels."""


def close(a, b, **tolerance):
    torch.testing.assert_close(a, b, **tolerance)


def net(*sizes):
    return torch.nn.Sequential(*[torch.nn.Linear(a, b) for a, b in zip(sizes, sizes[1:])])


def same_params(a, b, **tolerance):
    for one, other in zip(a.parameters(), b.parameters()):
        close(one, other, **tolerance)


def raises(kind, function, *arguments, **options):
    try:
        function(*arguments, **options)
    except kind as error:
        return error
    raise AssertionError(f"no {kind}")


# ---- one rank ----

def one_state_dict(rank, size):
    x = torch.tensor([1.0], requires_grad=True)
    o = ZeroRedundancyOptimizer([x], SGD, lr=0.1, momentum=0.9)
    x.backward()
    o.step()
    close(x, torch.tensor([0.9]), check_device=False)
    close(o.optim.state[x]["momentum_buffer"], torch.tensor([1.0]))
    o.zero_grad()
    o.consolidate_state_dict()
    state = o.state_dict()
    assert set(state) == {"param_groups", "state"}
    group = state["param_groups"][0]
    assert (group["lr"], group["momentum"], group["nesterov"], group["weight_decay"],
            group["dampening"]) == (0.1, 0.9, False, 0, 0)
    for name in group:
        assert name == "params" or o.param_groups[0][name] == group[name], name
    o = ZeroRedundancyOptimizer([x], SGD, lr=0.01)
    o.load_state_dict(state)
    close(o.optim.state[x]["momentum_buffer"], torch.tensor([1.0]))
    assert o.param_groups[0]["lr"] == 0.1
    x.backward()
    o.step()
    close(x, torch.tensor([0.71]))
    close(o.optim.state[x]["momentum_buffer"], torch.tensor([1.9]))
    assert o.param_groups[0]["params"][0].device == x.device


def one_options_and_steps(rank, size):
    for own, check in ((SGDWithStepKWArg, "kwarg"), (SGDWithNewKey, "key"),
                       (SGDWithoutClosure, None)):
        x = torch.tensor([1.0], requires_grad=True)
        o = ZeroRedundancyOptimizer([x], own, lr=0.1)
        x.backward()
        if check == "kwarg":
            kwarg = []
            o.step(0, kwarg=kwarg)
            assert kwarg == [5]
        else:
            o.step()
        close(x, torch.tensor([0.9]))
        assert check != "key" or o.param_groups[0]["new_key"] == 0.1
    raises(TypeError, ZeroRedundancyOptimizer([x], SGD, lr=0.1).step, kwarg=[])
    layer = torch.nn.Linear(1, 1)
    o = ZeroRedundancyOptimizer(layer.parameters(), SGD, lr=0.1)
    layer(torch.ones(1)).backward()
    assert layer.weight.grad.abs().sum() > 0
    o.zero_grad(set_to_none=True)
    assert layer.weight.grad is None and layer.bias.grad is None


def one_constructor(rank, size):
    m = net(5, 10, 10, 10)
    wrong = [([], ValueError), (torch.randn(1), TypeError), (1.2, TypeError),
             (list(m.parameters()) + [42], TypeError), ([{"lr": 1}], ValueError),
             ([{"params": []}], ValueError), ([{"params": set(m.parameters())}], TypeError),
             ([next(m.parameters()), {"params": []}], TypeError),
             ([next(m.parameters()) * 2], ValueError),
             ([{"params": [m[0].weight]}, {"params": [m[0].weight]}], ValueError),
             ([torch.sparse_coo_tensor(size=(2, 3))], ValueError),
             ([torch.ones(1), torch.ones(1).double()], ValueError),
             ([torch.ones(1), torch.ones(1), torch.sparse_coo_tensor(size=(2, 3))], ValueError)]
    for params, kind in wrong:
        raises(kind, ZeroRedundancyOptimizer, params, SGD, lr=0.01)
    right = [[{"params": [layer.weight for layer in m]}, {"params": [layer.bias for layer in m]}],
             m.parameters(), list(m.parameters()), [{"params": m.parameters()}]]
    for params in right:
        o = ZeroRedundancyOptimizer(params, SGD, lr=0.01)
        assert sum(len(group["params"]) for group in o.param_groups) == 6
    o = ZeroRedundancyOptimizer([{"params": torch.ones(3, 2)}], SGD, lr=0.01)
    assert len(o._all_params) == 1
    o = ZeroRedundancyOptimizer(
        [{"params": [layer.weight for layer in m], "weight_decay": 0.0},
         {"params": [layer.bias for layer in m], "weight_decay": 0.01}], AdamW, lr=0.01)
    assert len(o.param_groups) == len(o.optim.param_groups) == 2
    raises(ValueError, ZeroRedundancyOptimizer, m.parameters(), AdamW, lr=-1)
    raises(TypeError, ZeroRedundancyOptimizer, m.parameters(), AdamW, rate=1)
    functional = czero.torch.functional_optim_map[SGD]
    raises(ValueError, ZeroRedundancyOptimizer, m.parameters(), functional, lr=1)
    raises(ValueError, ZeroRedundancyOptimizer, m.parameters(), Scheduled, overlap_with_ddp=True)
    o.add_param_group({"params": torch.ones(3, requires_grad=True)})
    raises(ValueError, o.add_param_group, {"params": [m[0].weight]})
    raises(ValueError, o.add_param_group, {"params": [torch.ones(3).double()]})
    assert len(o.param_groups) == len(o.optim.param_groups) == 3


# ---- several ranks ----

def train_beside_theirs(rank, size, name, options, view):
    """Beside PyTorch's: parameters, exposed options, local state and consolidated state."""
    cls = Scheduled if name == "Scheduled" else getattr(torch.optim, name)
    pair = [net(20, 30, 5), net(20, 30, 5)]
    pair[1].load_state_dict(pair[0].state_dict())
    zeros = [kind(one.parameters(), cls, parameters_as_bucket_view=view, **options)
             for kind, one in zip((Theirs, ZeroRedundancyOptimizer), pair)]
    schedules = [torch.optim.lr_scheduler.StepLR(zero, 2, 0.5) for zero in zeros]
    compare = name != "NAdam" or torch.__version__ >= "2"  # 1.13's has a defect

    def steps(count):
        for _ in range(count):
            x = torch.randn(8, 20)
            for one, zero, schedule in zip(pair, zeros, schedules):
                zero.zero_grad()
                loss = torch.nn.functional.mse_loss(one(x), torch.ones(8, 5))
                loss.backward()
                zero.step()
                schedule.step()
    steps(4)
    for one, other in zip(*[zero.param_groups for zero in zeros]):
        assert {k: v for k, v in one.items() if k != "params"} == \
            {k: v for k, v in other.items() if k != "params"}
    for one, other in zip(*[zero.optim.param_groups for zero in zeros]):
        assert [p.shape for p in one["params"]] == [p.shape for p in other["params"]]
    assert len(zeros[0].optim.state) == len(zeros[1].optim.state)
    raises(RuntimeError, zeros[1].state_dict)
    for zero in zeros:
        zero.consolidate_state_dict(to=size - 1)
    states = [None, None]
    if rank == size - 1:
        states = [zero.state_dict() for zero in zeros]
        assert list(states[0]) == list(states[1])
        assert states[0]["param_groups"] == states[1]["param_groups"]
        assert list(states[0]["state"]) == list(states[1]["state"])
        for index, values in states[0]["state"].items():
            ours = states[1]["state"][index]
            assert list(values) == list(ours)
            for key, value in values.items():
                assert type(value) is type(ours[key]), (key, value, ours[key])
                if compare and torch.is_tensor(value):
                    close(ours[key], value, rtol=2e-5, atol=2e-5)
    else:
        raises(RuntimeError, zeros[1].state_dict)
    if compare:
        same_params(*pair)
    dist.broadcast_object_list(states, size - 1)
    kept = copy.deepcopy(states[0])
    zeros[0].load_state_dict(copy.deepcopy(states[1]))
    zeros[1].load_state_dict(states[0])
    assert str(kept) == str(states[0])  # theirs is changed by a load
    steps(2)
    if compare:
        same_params(*pair, rtol=1e-4, atol=1e-4)
    alone = net(20, 30, 5)  # and an optimizer that is not sharded loads it
    cls(alone.parameters(), **options).load_state_dict(copy.deepcopy(states[1]))


def values_that_travel(rank, size, name, options):
    """As between machines, which share no memory."""
    class Nowhere:
        def __init__(self, group, count):
            raise czero.UnsupportedError("no memory is shared")
    shared, shard._Shared = shard._Shared, Nowhere
    try:
        train_beside_theirs(rank, size, name, options, False)
        odd_parameters(rank, size)
    finally:
        shard._Shared = shared


def steps_by_hand(rank, size):
    for view in (False, True):
        for closure in (False, True):
            m, mz = torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)
            for one in (m, mz):
                one.weight.data.fill_(1.0)
                one.bias.data.fill_(2.0)
            zero = ZeroRedundancyOptimizer(mz.parameters(), SGD, lr=0.1,
                                           parameters_as_bucket_view=view)
            plain, x = SGD(m.parameters(), lr=0.1), torch.tensor([float(rank + 1)])

            def run(one, optim):
                optim.zero_grad()
                loss = (one(x) - one(x).detach() - 1).abs().sum()
                loss.backward()
                for param in one.parameters():
                    dist.all_reduce(param.grad)
                    param.grad /= size
                return loss
            if closure:
                calls = []
                loss = zero.step(lambda: calls.append(1) or run(mz, zero))
                assert loss.item() == 1 and len(calls) == 1
                plain.step(lambda: run(m, plain))
            else:
                run(m, plain)
                run(mz, zero)
                plain.step()
                assert zero.step() is None
            same_params(m, mz)


def sharding_and_groups(rank, size):
    sizes = [9, 7, 5, 3]
    params = [torch.rand(n, 1, requires_grad=True) for n in sizes * size]
    o = ZeroRedundancyOptimizer(params, SGD, lr=0.1)
    theirs = Theirs(params, SGD, lr=0.1)
    assert sum(x.numel() for x in o.optim.param_groups[0]["params"]) == sum(sizes)
    mine = [[id(p) for p in g["params"]] for g in theirs.optim.param_groups]
    assert mine == [[id(p) for p in g["params"]] for g in o.optim.param_groups]
    assert {id(p): r for p, r in theirs._param_to_rank.items()} == \
        {id(p): r for p, r in o._param_to_rank.items()}
    for start, more, frozen in (((sizes * size)[:-1], [3], []), ([100, 3, 5, 2, 6, 4], [3], [0])):
        params = [torch.rand(n, 1) for n in start]
        for place, param in enumerate(params):
            param.requires_grad = place not in frozen
        pair = [kind(params, SGD, lr=0.1) for kind in (Theirs, ZeroRedundancyOptimizer)]
        assert len(pair[1].param_groups) == 1
        added = [torch.rand(n, 1, requires_grad=True) for n in more]
        for one in pair:
            one.add_param_group({"params": added})
        assert len(pair[1].param_groups) == len(pair[1].optim.param_groups) == 2
        for one, other in zip(*[zero.optim.param_groups for zero in pair]):
            assert [id(p) for p in one["params"]] == [id(p) for p in other["params"]]


def groups_up_front_and_later(rank, size):
    for cls in (AdamW, Scheduled):
        first = net(5, 10, 10, 5)
        models = [first] + [copy.deepcopy(first) for _ in range(2)]
        weights = [[layer.weight for layer in one] for one in models]
        biases = [[layer.bias for layer in one] for one in models]
        groups = [[{"params": w, "weight_decay": 0.0}, {"params": b, "weight_decay": 0.01}]
                  for w, b in zip(weights, biases)]
        front = ZeroRedundancyOptimizer(groups[0], cls, lr=0.01)
        later = ZeroRedundancyOptimizer(groups[1][:1], cls, lr=0.01,
                                        parameters_as_bucket_view=True)
        later.add_param_group(groups[1][1])
        plain = cls(groups[2], lr=0.01)
        for _ in range(3):
            x = torch.randn(8, 5)
            for one, optim in zip(models, (front, later, plain)):
                optim.zero_grad()
                one(x).sum().backward()
                optim.step()
            same_params(models[0], models[2])
            same_params(models[1], models[2])
        front.consolidate_state_dict()
        later.consolidate_state_dict()
        if rank == 0:
            wanted = plain.state_dict()["state"]
            for one in (front, later):
                found = one.state_dict()["state"]
                assert list(found) == list(wanted)
                for index in wanted:
                    close(found[index]["exp_avg"], wanted[index]["exp_avg"])


def collected_shards(rank, size):
    m = net(20, 10, 5)
    for cls in (SGD, Scheduled):
        options = dict(momentum=0.99) if cls is SGD else {}
        o = ZeroRedundancyOptimizer(m.parameters(), cls, lr=1e-3, **options)

        def closure():
            o.zero_grad()
            loss = torch.nn.functional.l1_loss(m(torch.rand(3, 20)), torch.rand(3, 5))
            loss.backward()
            return loss
        o.step(closure)
        o.consolidate_state_dict(to=0)
        state = o.state_dict() if rank == 0 else None
        assert rank or len(state["state"]) == len(list(m.parameters()))
        before = copy.deepcopy(state)
        o.step(closure)
        assert str(state) == str(before), "a snapshot changed with a later step"
        given = [state]
        dist.broadcast_object_list(given)
        o.load_state_dict(given[0])
        assert "cannot" not in str(raises(ValueError, o.consolidate_state_dict, to=size))
        bad = copy.deepcopy(given[0])
        bad["state"][99] = bad["state"][0]
        raises(IndexError, o.load_state_dict, bad)
        bad = copy.deepcopy(given[0])
        bad["param_groups"].append(bad["param_groups"][0])
        raises(ValueError, o.load_state_dict, bad)


def another_group(rank, size):
    group = dist.new_group([0, size - 1])
    torch.manual_seed(rank)
    m = net(20, 10, 5)
    if rank not in (0, size - 1):
        raises((RuntimeError, ValueError, TypeError, AttributeError), ZeroRedundancyOptimizer,
               m.parameters(), SGD, process_group=group, lr=1e-3)
        return None
    for param in m.parameters():
        dist.broadcast(param.data, 0, group=group)
    o = ZeroRedundancyOptimizer(m.parameters(), SGD, process_group=group, lr=1e-3, momentum=0.99)
    assert (o.world_size, o.rank, o.global_rank) == (2, int(rank > 0), rank)
    for _ in range(5):
        def closure():
            o.zero_grad()
            loss = m(torch.rand(3, 20)).sum()
            loss.backward()
            for param in m.parameters():
                dist.all_reduce(param.grad, group=group)
            return loss
        o.step(closure)
    return [param.detach().numpy().tolist() for param in m.parameters()]


def parity_with_a_local_optimizer(rank, size, name, maximize):
    torch.manual_seed(rank)
    cls = getattr(torch.optim, name)
    models = [net(2, 3, 3, 3) for _ in range(2)]
    for one in models:
        one.register_buffer("test_buffer", torch.ones(1) * rank)
    models[1].load_state_dict(models[0].state_dict())
    ddps = [DDP(one, find_unused_parameters=True, broadcast_buffers=True) for one in models]
    zero = ZeroRedundancyOptimizer(ddps[0].parameters(), cls, lr=1e-3, maximize=maximize)
    plain = cls(ddps[1].parameters(), lr=1e-3, maximize=maximize)
    same_params(*ddps)

    def step():
        x = torch.rand(64, 2)
        losses = []
        for one, optim in zip(ddps, (zero, plain)):
            def closure():
                optim.zero_grad()
                loss = one(x).abs().sum()
                loss.backward()
                return loss
            losses.append(optim.step(closure))
        close(*losses)
        same_params(*ddps, rtol=1e-5, atol=1e-3)
    for batch in range(20):
        if batch > 11:
            for one in ddps:
                first = next(one.parameters())
                first.requires_grad = not first.requires_grad
        step()
    zero.consolidate_state_dict()
    given = [zero.state_dict() if rank == 0 else None]
    dist.broadcast_object_list(given)
    mine = copy.deepcopy(plain.state_dict())
    plain.load_state_dict(copy.deepcopy(given[0]))
    zero.load_state_dict(copy.deepcopy(mine))
    step()
    zero.load_state_dict(given[0])
    plain.load_state_dict(mine)
    step()


class SetGradients(Joinable):
    """Sets recorded gradients, also on ranks that have joined."""

    def __init__(self, device, group, zero, gradients):
        self.zero, self.gradients, self.index = zero, gradients, 0
        self._device, self._group = device, group
        super().__init__()

    def join_hook(self, **kwargs):
        class Hook(JoinHook):
            def main_hook(hook):
                self.set()
        return Hook()

    def set(self):
        for param, gradient in zip(self.zero._all_params, self.gradients[self.index]):
            param.grad = gradient.clone()
        self.index += 1

    @property
    def join_device(self):
        return self._device

    @property
    def join_process_group(self):
        return self._group


def joined_with_recorded_gradients(rank, size, name):
    cls = Scheduled if name == "Scheduled" else Adam
    m = net(2, 3, 3, 3)
    start = copy.deepcopy(m)
    ddp = DDP(m)
    plain = cls(ddp.parameters(), lr=0.01)
    inputs = [torch.randn(20, 2) for _ in range(3 + rank)]
    gradients, values = [], []
    with ddp.join():
        for _ in range(2):
            for x in inputs:
                plain.zero_grad()
                torch.nn.functional.mse_loss(ddp(x), torch.ones(20, 3)).backward()
                plain.step()
                gradients.append([p.grad.clone() for p in m.parameters()])
                values.append([p.detach().clone() for p in m.parameters()])
    recorded = [gradients, values]
    dist.broadcast_object_list(recorded, size - 1)
    gradients, values = recorded
    zero = ZeroRedundancyOptimizer(start.parameters(), cls, lr=0.01)
    setter = SetGradients(torch.device("cpu"), dist.group.WORLD, zero, gradients)
    with Join([setter, zero]):
        for step in range(2 * len(inputs)):
            Join.notify_join_context(setter)
            setter.set()
            zero.step()
            for one, wanted in zip(start.parameters(), values[step]):
                close(one, wanted)
    for one, wanted in zip(start.parameters(), values[-1]):
        close(one, wanted)  # also on ranks that had joined


def joined_ddp_and_zero(rank, size):
    """What PyTorch's documentation shows, and its own optimizer gets wrong: steps of joined ranks
    with the gradients of the pass. And the optimizer as the first joinable."""
    models = [net(2, 3, 3) for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    ddps = [DDP(one) for one in models]
    zero = ZeroRedundancyOptimizer(ddps[0].parameters(), Adam, lr=0.01)
    plain = Adam(ddps[1].parameters(), lr=0.01)
    inputs = [torch.randn(20, 2) for _ in range(5)][:2 + rank]

    def train(ddp, optim):
        for x in inputs:
            optim.zero_grad()
            ddp(x).pow(2).mean().backward()
            optim.step()
    with Join([ddps[0], zero]):
        train(ddps[0], zero)
    with ddps[1].join():
        train(ddps[1], plain)
    last = [p.detach().clone() for p in models[1].parameters()]
    for param in last:
        dist.broadcast(param, size - 1)  # whose optimizer made all steps
    for one, wanted in zip(models[0].parameters(), last):
        close(one, wanted)
    alone = torch.ones(4, requires_grad=True)
    o = ZeroRedundancyOptimizer([alone], SGD, lr=0.5)
    with Join([o]):
        for _ in range(1 + rank):
            alone.grad = torch.ones(4)
            o.step()
    close(alone.detach(), torch.ones(4) - 0.5 * size)


def overlapped_with_ddp(rank, size, interleaved, view, static, pieces, schedule):
    start = net(30, 50, 20, 10)
    over, plain = copy.deepcopy(start), copy.deepcopy(start)
    inputs = [torch.randn(4, 30) + rank for _ in range(5)]
    options = dict(lr=0.01, momentum=0.9, weight_decay=0.001)
    given = dict(bucket_cap_mb=0.004, gradient_as_bucket_view=view, static_graph=static)
    ddp, other = DDP(over, **given), DDP(plain, **given)
    zero = ZeroRedundancyOptimizer(ddp.parameters(), SGD, overlap_with_ddp=True, **options)
    make = hook_with_zero_step_interleaved if interleaved else hook_with_zero_step
    raises(RuntimeError, zero.consolidate_state_dict)
    raises(RuntimeError, zero.add_param_group, {"params": [torch.ones(2, requires_grad=True)]})
    ddp.register_comm_hook(None, make(allreduce_hook if not schedule else fp16_compress_hook, ddp,
                                      zero, shard_buckets=pieces))
    if schedule:
        other.register_comm_hook(None, fp16_compress_hook)
    optim = SGD(other.parameters(), **options)
    schedules = [torch.optim.lr_scheduler.StepLR(one, 1, 0.5) for one in (zero, optim)]

    def run(model, x):
        model.zero_grad()
        model(x).pow(2).mean().backward()
    for x in inputs[:3 if static else 2]:
        run(ddp, x)
    same_params(over, start)
    for x in inputs:
        run(ddp, x)
        run(other, x)
        optim.step()
        if schedule:
            for one in schedules:
                one.step()
        same_params(over, plain, rtol=1e-4, atol=1e-4 if schedule else 1e-5)
    assert zero.step() is None
    assert any((a != b).any() for a, b in zip(over.parameters(), start.parameters()))
    if pieces:  # parts of buckets are dealt out
        owners = set(zero._param_to_rank.values())
        assert len(owners) > 1
    zero.consolidate_state_dict()
    if rank == 0:
        close(zero.state_dict()["state"][0]["momentum_buffer"],
              optim.state_dict()["state"][0]["momentum_buffer"], rtol=1e-4,
              atol=1e-3 if schedule else 1e-5)  # the hook rounds to 16 bits
    searching = DDP(net(3, 3), find_unused_parameters=True)
    raises(ValueError, make, allreduce_hook, searching, zero)  # there no step would ever be made
    raises(ValueError, make, allreduce_hook, ddp,
           ZeroRedundancyOptimizer(over.parameters(), SGD, lr=1))


def odd_parameters(rank, size):
    """Not contiguous, moved, of other types, empty, frozen, without gradients."""
    params = [torch.ones(4, 6).t().requires_grad_(), torch.ones(3, requires_grad=True),
              torch.ones(0, requires_grad=True), torch.ones(5), torch.ones(2, requires_grad=True)]
    o = ZeroRedundancyOptimizer(params, SGD, lr=0.5)
    params[1].data = torch.full((3,), 7.0)  # its memory is another now
    for param in params[:2]:
        param.grad = torch.ones_like(param)
    params[3].grad = torch.ones(5)  # it is frozen, and PyTorch's optimizers do not look at that
    o.step()
    assert [p.flatten()[0].item() if p.numel() else None for p in params] == \
        [0.5, 6.5, None, 0.5, 1.0]
    for dtype in (torch.bfloat16, torch.float16, torch.complex64, torch.complex128, torch.float64):
        param = torch.ones(5, dtype=dtype, requires_grad=True)
        o = ZeroRedundancyOptimizer([param, torch.ones(2, dtype=dtype)], SGD, lr=0.5)
        param.grad = torch.ones_like(param)
        o.step()
        assert (param == 0.5).all(), param
    emptier = [torch.ones(1, requires_grad=True)]  # others own nothing
    o = ZeroRedundancyOptimizer(emptier, Adam, lr=0.5)
    emptier[0].grad = torch.ones(1)
    o.step()
    assert emptier[0].item() != 1
    o.consolidate_state_dict()
    if rank == 0:
        assert list(o.state_dict()["state"]) == [0]


def failures(rank, size):
    """An exception comes out where it was raised; others raise too; and all may go on."""
    for cls in (SGD, SGDWithNewKey):
        x = torch.ones(4, requires_grad=True)
        o = ZeroRedundancyOptimizer([x, torch.ones(3, requires_grad=True)], cls, lr=0.5)
        x.grad = torch.ones(4)

        def closure():
            if rank == 1:
                raise LookupError("no data here")
            return torch.ones(())
        if cls is SGD:
            error = raises((LookupError, czero.Error), o.step, closure)
            assert isinstance(error, LookupError) == (rank == 1)
            assert "no data here" in str(error)
        else:
            o.optim.step = (lambda *a, **k: 1 / 0) if rank == 0 else o.optim.step
            error = raises((ZeroDivisionError, czero.Error), o.step)
            assert isinstance(error, ZeroDivisionError) == (rank == 0)
            if rank == 0:
                del o.optim.step
        assert (x == 1).all() or cls is not SGD
        x.data.fill_(1)
        o.step()
        assert (x == 0.5).all()
        if cls is SGD:
            o.param_groups[0]["lr"] = "much" if rank == 1 else 0.5
            error = raises((ValueError, czero.Error), o.step)
            assert isinstance(error, czero.Error) == (rank != 1) and "much" in str(error)
            o.param_groups[0]["lr"] = 0.5
            o.step()
            assert (x == 0).all()


def failures_in_the_backward_pass(rank, size, interleaved):
    """What one rank has wrong ends the pass of all."""
    ddp = DDP(net(4, 3, 2))
    zero = ZeroRedundancyOptimizer(ddp.parameters(), SGD, overlap_with_ddp=True, lr=0.1)
    hook = hook_with_zero_step_interleaved if interleaved else hook_with_zero_step
    ddp.register_comm_hook(None, hook(allreduce_hook, ddp, zero))
    for step in range(4):
        ddp(torch.ones(2, 4)).sum().backward()
    zero.param_groups[0]["lr"] = "much" if rank == 1 else 0.1
    error = raises(RuntimeError, ddp(torch.ones(2, 4)).sum().backward)
    assert "much" in str(error)


def steps_without_a_meeting(rank, size):
    """What a rank does to its values right after a step is not seen by those that are still in it;
    closures may be given on some ranks only; what one rank refuses changes nothing on any."""
    params = [torch.zeros(count, requires_grad=True) for count in (50_000, 3, 0, 100_000, 7)]
    o = ZeroRedundancyOptimizer(params, SGD, lr=1.0)
    for step in range(100):
        for param in params:
            param.data.fill_(step)
            param.grad = torch.ones_like(param)
        o.step((lambda: torch.ones(())) if step % size == rank else None)
        for param in params:
            assert (param == step - 1).all(), step
            param.data.fill_(-5)  # whoever is late must not get this
    o = ZeroRedundancyOptimizer(params, Adam, lr=1.0)
    params[0].grad = torch.sparse_coo_tensor([[1]], [1.0], (50_000,))
    error = raises(RuntimeError, o.step)  # czero's StateError is one
    assert "sparse" in str(error)
    assert all((param == -5).all() for param in params)
    params[0].grad = torch.ones(50_000)
    o.step()
    assert all((param == -6).all() for param in params)


def nothing_leaks(rank, size):
    from czero._library import lib

    made = []

    def once():
        for cls in (Adam, Scheduled):
            x = torch.ones(1000, requires_grad=True)
            o = ZeroRedundancyOptimizer([x], cls, lr=0.5)
            x.grad = torch.ones(1000)
            o.step()
            made.append(weakref.ref(o))
    for _ in range(3):
        once()
    gc.collect()
    before, files = lib.cz_memory_bytes(1), len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        once()
    gc.collect()
    assert not any(one() for one in made)
    assert lib.cz_memory_bytes(1) <= before
    assert len(os.listdir("/proc/self/fd")) <= files


def a_group_of_a_process_group(rank, size):
    group = czero.torch.group()
    assert (group.rank, group.size) == (rank, size)
    for count in (1, 1000, 3_000_000):
        x = torch.full((count,), float(rank))
        group.all_reduce(x)
        assert (x == size * (size - 1) / 2).all()
    half = group.split(rank % 2)
    y = torch.ones(5)
    half.all_reduce(y)
    assert (y == half.size).all()
    layers = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    layers[0].bias.requires_grad = False
    seen = czero.torch.model(layers)
    assert seen.names == [name for name, _ in layers.named_parameters()]
    layers(torch.ones(2, 4) + rank).sum().backward()
    frozen = layers[0].bias.clone()
    czero.Zero(group, seen, "sgd", lr=0.1).step()
    assert (layers[0].bias == frozen).all()
    seen.check_replicas(group, parameters_only=True)
    with tempfile.TemporaryDirectory() as folder:  # each its own
        alone = czero.Group.self_()
        czero.Checkpoint(alone, folder + "/c", model=seen).export(folder + "/model.pt")
        loaded = torch.load(folder + "/model.pt")
        loaded = loaded.get("model", loaded)
        assert set(loaded) == set(layers.state_dict()), (set(loaded), set(layers.state_dict()))
    model = czero.Model({"a": (torch.ones(100), torch.full((100,), float(rank)))})
    zero = czero.Zero(group, model, "sgd", lr=1.0)
    zero.step()
    assert (zero.model.value("a") == 1 - (size - 1) / 2).all()


class OneRank(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.ranks = Ranks(1)

    @classmethod
    def tearDownClass(cls):
        cls.ranks.end()

    def test_state_dict(self):
        self.ranks.run(one_state_dict)

    def test_options_and_steps(self):
        self.ranks.run(one_options_and_steps)

    def test_constructor(self):
        self.ranks.run(one_constructor)

    def test_beside_theirs(self):
        for name, options in ALL:
            with self.subTest(name):
                self.ranks.run(train_beside_theirs, name, options, False)

    def test_odd_parameters(self):
        self.ranks.run(odd_parameters)


class SeveralRanks(unittest.TestCase):
    SIZE = 3

    @classmethod
    def setUpClass(cls):
        cls.ranks = Ranks(cls.SIZE)

    @classmethod
    def tearDownClass(cls):
        cls.ranks.end()

    def test_beside_theirs(self):
        for place, (name, options) in enumerate(ALL + [("Scheduled", {})]):
            with self.subTest(name, **options):
                self.ranks.run(train_beside_theirs, name, options, place % 2 == 1)

    def test_values_that_travel(self):
        self.ranks.run(values_that_travel, "AdamW", {})
        self.ranks.run(values_that_travel, "Scheduled", {})

    def test_steps_by_hand(self):
        self.ranks.run(steps_by_hand)

    def test_sharding_and_groups(self):
        self.ranks.run(sharding_and_groups)

    def test_groups_up_front_and_later(self):
        self.ranks.run(groups_up_front_and_later)

    def test_collected_shards(self):
        self.ranks.run(collected_shards)

    def test_another_group(self):
        first, *_, last = self.ranks.run(another_group)
        self.assertEqual(first, last)

    def test_parity_with_a_local_optimizer(self):
        for name in ("Adam", "AdamW", "SGD"):
            for maximize in (False, True):
                with self.subTest(name, maximize=maximize):
                    self.ranks.run(parity_with_a_local_optimizer, name, maximize)

    def test_joined_with_recorded_gradients(self):
        for name in ("Adam", "Scheduled"):
            self.ranks.run(joined_with_recorded_gradients, name)

    def test_joined_ddp_and_zero(self):
        self.ranks.run(joined_ddp_and_zero)

    def test_overlapped_with_ddp(self):
        for interleaved in (False, True):
            for view in (False, True):
                for static in (False, True):
                    for pieces in (False, True):
                        case = dict(interleaved=interleaved, view=view, static=static,
                                    pieces=pieces)
                        with self.subTest(**case):
                            self.ranks.run(overlapped_with_ddp, interleaved, view, static, pieces,
                                           False)
        self.ranks.run(overlapped_with_ddp, True, False, False, True, True)

    def test_odd_parameters(self):
        self.ranks.run(odd_parameters)

    def test_failures(self):
        self.ranks.run(failures)
        for interleaved in (False, True):
            self.ranks.run(failures_in_the_backward_pass, interleaved)

    def test_steps_without_a_meeting(self):
        self.ranks.run(steps_without_a_meeting)

    def test_nothing_leaks(self):
        self.ranks.run(nothing_leaks)

    def test_a_group_of_a_process_group(self):
        self.ranks.run(a_group_of_a_process_group)


if __name__ == "__main__":
    unittest.main()
