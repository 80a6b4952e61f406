# SPDX-License-Identifier: MIT
"""Steps inside the backward pass of PyTorch's DDP: communication hooks around other hooks."""
import threading
import weakref

from . import rules
from .shard import Shard
from .zero import ZeroRedundancyOptimizer, _OverlapStatus


def hook_with_zero_step(hook, ddp, zero, shard_buckets=False):
    """A communication hook that does what `hook` does, and makes the optimizer's step at the end of
    the backward pass, once all buckets are reduced.

    Args:
        hook: such as ``torch.distributed.algorithms.ddp_comm_hooks.default_hooks.allreduce_hook``.
        ddp: the DDP that it is registered with (``ddp.register_comm_hook(None, …)``).
        zero: a :class:`ZeroRedundancyOptimizer` with ``overlap_with_ddp=True``.
        shard_buckets: deal out parts of buckets, so that ranks own about as much.

    Raises:
        ValueError: the optimizer was made without overlap.
    """
    return _hook(hook, ddp, zero, shard_buckets, False)


def hook_with_zero_step_interleaved(hook, ddp, zero, shard_buckets=False):
    """As :func:`hook_with_zero_step`; each bucket is updated as soon as it is reduced, while the
    backward pass goes on."""
    return _hook(hook, ddp, zero, shard_buckets, True)


def _hook(hook, ddp, zero, shard_buckets, interleaved):
    if not isinstance(zero, ZeroRedundancyOptimizer) or not zero._overlap_with_ddp:
        raise ValueError("ZeroRedundancyOptimizer must be constructed with overlap_with_ddp=True "
                         "to make its steps in a hook")
    if ddp.find_unused_parameters and not ddp.static_graph:
        raise ValueError("with find_unused_parameters a DDP never makes its buckets anew, which "
                         "overlap_with_ddp waits for: no step would ever be made")
    info, model = zero._overlap_info, weakref.ref(ddp)
    if shard_buckets:
        info.shard_buckets, info.total_size = True, 0
    steps = _Steps(zero, interleaved)

    def run(state, bucket):
        future = hook(state, bucket)
        if info.status == _OverlapStatus.UNINITIALIZED:
            if not model()._has_rebuilt_buckets:
                return future
            info.status = _OverlapStatus.DDP_HAS_REBUILT_BUCKETS
        if info.status == _OverlapStatus.DDP_HAS_REBUILT_BUCKETS:
            if bucket.index() != 0 or not info.params_per_bucket:
                info.params_per_bucket.append(bucket.parameters())
                if shard_buckets:
                    info.total_size += sum(one.numel() for one in bucket.parameters())
                return future
            _initialise(zero)
            info.status = _OverlapStatus.INITIALIZED
        return steps.after(future, bucket)
    return run


def _initialise(zero):
    """DDP's buckets are what they will be: give each parameter an owner, and make a shard of each
    bucket. Collective."""
    info = zero._overlap_info
    if len(zero.param_groups) != 1:
        raise RuntimeError("overlap_with_ddp takes one parameter group, and there are "
                           f"{len(zero.param_groups)}")
    load = [0] * zero.world_size
    buckets = list(enumerate(info.params_per_bucket))
    if info.shard_buckets:
        buckets.sort(key=lambda one: sum(param.numel() for param in one[1]))
    info.assigned_ranks_per_bucket = [set() for _ in buckets]
    for index, params in buckets:
        pieces = [params]
        if info.shard_buckets:
            pieces = _pieces(params, info.total_size / zero.world_size, zero.world_size)
        for piece in pieces:
            taken = info.assigned_ranks_per_bucket[index]
            rank = index % zero.world_size
            if info.shard_buckets:
                rank = min((one for one in range(zero.world_size) if one not in taken),
                           key=lambda one: load[one])
            taken.add(rank)
            load[rank] += sum(param.numel() for param in piece)
            info.num_bucket_assignments += 1
            info.params_per_rank[rank].extend(piece)
            for param in piece:
                zero._owners[id(param)] = rank
    left = [param for param in zero._all_params if id(param) not in zero._owners]
    zero._load = load
    zero._assign([{"params": left}])  # what DDP does not reduce is not updated, and has an owner
    zero._make_local(zero.param_groups)
    zero._sync_param_groups(zero.optim.param_groups, zero.param_groups)
    for params in info.params_per_bucket:
        given = [{**zero.optim.param_groups[0], "params": params}]
        rule = rules.rule_of(zero._optim_constructor, given, params)
        if rule is None:
            raise RuntimeError("overlap_with_ddp takes options that the library's kernels have, "
                               "and parameters of float32 or float64")
        shard = Shard(zero._group, params, [zero._owners[id(one)] for one in params], rule, given)
        shard.first_group, shard.group_of = 0, {id(one): 0 for one in params}
        shard.layouts = [rules.layout_of(zero._optim_constructor, given[0])]
        zero._shards.append(shard)


def _pieces(params, threshold, most):
    """Cut a bucket between parameters where a piece would reach the threshold; the last piece takes
    the rest where there would be more than `most`."""
    pieces, size = [[]], 0
    for param in params:
        if pieces[-1] and size + param.numel() >= threshold and len(pieces) < most:
            pieces.append([])
            size = 0
        pieces[-1].append(param)
        size += param.numel()
    return pieces


class _Steps:
    """The steps of one pass: buckets come in any order, on any thread, and are stepped in the order
    of their numbers on every rank. Whoever finds the next one ready steps it, and those after it;
    its own bucket's future has not ended until then, so the pass waits for it."""

    def __init__(self, zero, interleaved):
        self._zero, self._interleaved = weakref.ref(zero), interleaved
        self._lock = threading.Lock()
        self._ready, self._next, self._running = {}, 0, False

    def after(self, future, bucket):
        index, buffer, gradients = bucket.index(), bucket.buffer(), bucket.gradients()
        if index == 0:
            with self._lock:  # a pass before may not have come to its end
                self._ready.clear()
                self._next, self._running = 0, False

        def reduced(done):
            result = done.value()
            result = result[0] if isinstance(result, (list, tuple)) else result
            if result.data_ptr() != buffer.data_ptr():
                buffer.copy_(result.view_as(buffer))
            self._step(index, gradients)
            return buffer
        return future.then(reduced)

    def _step(self, index, gradients):
        zero = self._zero()
        count = len(zero._shards)
        with self._lock:
            self._ready[index] = gradients
            if self._running:
                return
            if not self._interleaved and len(self._ready) < count:
                return
            self._running = True

        def begin():  # where what is raised ends the step on all ranks
            zero._sync_param_groups(zero.param_groups, zero.optim.param_groups)
            zero._send_hypers()
            if zero._get_is_trainable_mask() != zero._is_trainable_mask:
                raise RuntimeError("parameters were frozen or unfrozen, which overlap_with_ddp "
                                   "does not go with")
        try:
            while True:
                with self._lock:
                    gradients = self._ready.pop(self._next, None)
                    if gradients is None:
                        self._running = False
                        return
                    place, self._next = self._next, (self._next + 1) % count
                shard = zero._shards[place]
                used = shard.step(gradients=gradients, begin=begin if place == 0 else None)
                zero._count_steps(shard, used)
        except BaseException:
            with self._lock:
                self._ready.clear()
                self._next, self._running = 0, False
            raise
