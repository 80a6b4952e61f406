# SPDX-License-Identifier: MIT
"""Data parallelism: gradients are reduced bucket by bucket while the backward pass goes on."""
from __future__ import annotations

import collections.abc
import contextlib
import ctypes
import typing

from . import _arrays
from . import _declarations as c
from . import errors, hooking
from ._library import Handle, Thrown, call, called, lib, text
from .group import _op

if typing.TYPE_CHECKING:
    from .group import Group
    from .hooking import PostLocalSGD, PowerSGD
    from .model import Model
    from .parts import Parts


class DDP(Handle):
    """One rank's part of a data-parallel model. A pass::

        with ddp.backward():
            for name in reversed(model.names):
                …                      # compute that gradient
                ddp.mark_ready(name)
        # here all gradients are the mean over ranks

    Collective. Rank 0's parameters and buffers are brought to every rank.

    Args:
        bucket_bytes: a bucket is full when its gradients have that many; 0: 25 MiB.
        first_bucket_bytes: smaller, so that the first reduction starts early; 0: 1 MiB.
        find_unused: parameters may stay unmarked in a pass.
        static_graph: every pass marks what the first one marked, as often.
        keep_buckets: they stay in the order of the model.
        keep_values, keep_buffers: those of each rank stay as they are.
        all_reduce: every rank gets all of the mean also with a sharded optimizer.
    """

    _destroy = "cz_ddp_destroy"

    def __init__(self, group: Group, model: Model, *, bucket_bytes: int = 0,
                 first_bucket_bytes: int = 0, find_unused: bool = False, static_graph: bool = False,
                 keep_buckets: bool = False, keep_values: bool = False, keep_buffers: bool = False,
                 all_reduce: bool = False, parts: Parts | None = None):
        self.group, self.model, self.parts = group, model, parts
        self._thrown, handle = Thrown(), ctypes.c_void_p()
        options = c.cz_ddp_options(
            bucket_bytes=bucket_bytes, first_bucket_bytes=first_bucket_bytes,
            find_unused=find_unused, keep_buckets=keep_buckets, keep_values=keep_values,
            keep_buffers=keep_buffers, all_reduce=all_reduce, static_graph=static_graph,
            parts=parts and parts._ptr)
        call(lib.cz_ddp_create(ctypes.byref(handle), group._ptr, model._ptr, options))
        # Functions that the library calls.
        self._kept: dict = {"hook": None, "pass": -1, "then": [], "live": [True]}
        self._own(handle, keep=self._kept, group=group, needs=(model,))
        self._rules: list = []  # of optimizers that may step in its passes

    def begin(self, sync: bool = True) -> None:
        """Begin a pass, before its forward. `sync` false: gradients are only added up. Collective
        if `sync`."""
        self._thrown.take()
        call(lib.cz_ddp_begin(self._ptr, sync), self._thrown)

    def mark_ready(self, param: str | int) -> None:
        """The gradient of a parameter is complete here, and is not touched until the pass ends.
        Any thread."""
        call(lib.cz_ddp_mark_ready(self._ptr, self.model.index(param)), self._thrown)

    def finish(self) -> None:
        """End a pass: wait until all gradients are the mean over ranks.

        Raises:
            StateError: on all ranks: a parameter was not marked, on which rank and in which bucket.
            What a hook raised here; other ranks get an error with its text.
        """
        status = lib.cz_ddp_finish(self._ptr)
        self._end_buckets()
        call(status, self._thrown)
        for rules in self._rules:
            rules.raise_what_came()

    def abandon(self) -> None:
        """End a pass that this rank cannot complete: the others get a StateError."""
        status = lib.cz_ddp_abandon(self._ptr)
        self._end_buckets()
        call(status)
        self._thrown.take()

    def _end_buckets(self):
        """No pass is under way: who has kept a Bucket has nothing in it any more."""
        self._kept["live"][0] = False
        self._kept["live"] = [True]

    @contextlib.contextmanager
    def backward(self, sync: bool = True):
        """A pass as a ``with`` block; an exception in it abandons the pass on all ranks."""
        self.begin(sync)
        try:
            yield self
        except BaseException:
            with contextlib.suppress(errors.Error):
                self.abandon()
            raise
        self.finish()

    def set_weight(self, weight: float) -> None:
        """What this rank's gradients count for in the mean, such as its number of examples."""
        call(lib.cz_ddp_set_weight(self._ptr, weight))

    def set_uses(self, param: str | int, uses: int) -> None:
        """A parameter's gradient is complete at the n-th mark of a pass: tied weights."""
        call(lib.cz_ddp_set_uses(self._ptr, self.model.index(param), uses))

    def register_hook(self, hook: str | collections.abc.Callable[[Bucket], None],
                      state: PowerSGD | PostLocalSGD | str | int | None = None, *,
                      name: str | None = None, result: str = "whole") -> None:
        """Reduce buckets by a hook from the next pass on, alike on all ranks.

        Args:
            hook: a name of :func:`hooks`, or a function that is called with a :class:`Bucket`. It
                reads and writes ``bucket.buffer`` and starts operations on it
                (``bucket.all_reduce("average")``); it must not wait. It runs on a thread of the
                library or one that waits in it.
            state: of a hook by name: a :class:`PowerSGD` for "powersgd", a :class:`PostLocalSGD`
                for "post_local_sgd"; for "fp16_compress" and "bf16_compress" one of these, or a
                hook's name: what is done in half the bytes; for "quantize_per_channel" a number of
                elements.
            name: of a function; alike on all ranks.
            result: "whole": every element of the buffer is reduced in the end.
        """
        if isinstance(hook, str):
            self._kept["hook"] = hooking.register(self, hook, state)
            return
        if not callable(hook):
            raise errors.ArgumentError("a hook is the name of a built-in one, or a function")
        if state is not None:
            raise errors.ArgumentError("a function has its state in itself")
        if result not in ("whole", "slice"):
            raise errors.ArgumentError(f"result is whole or slice, not {result!r}")
        thrown, kept, end = self._thrown, self._kept, self._end

        def run(_, handle):
            hook(Bucket(ctypes.c_void_p(handle), thrown, kept, end))
        given = c.cz_hook(name=text(name or getattr(hook, "__name__", "hook")),
                          result=c.CZ_HOOK_WHOLE if result == "whole" else c.CZ_HOOK_SLICE)
        given.run = type(given.run)(thrown.guard(run))
        call(lib.cz_ddp_register_hook(self._ptr, given))
        kept["hook"] = given.run

    @property
    def passes(self) -> int:
        """Passes that have synchronised and succeeded; may be set before the first one."""
        return self._info().passes

    @passes.setter
    def passes(self, count):
        call(lib.cz_ddp_set_passes(self._ptr, count))

    def buckets(self) -> list[list[int]]:
        """A list of the numbers of the parameters in each bucket."""
        found = []
        for bucket in range(self._info().bucket_count):
            count = lib.cz_ddp_bucket_params(self._ptr, bucket, None, 0)
            numbers = (ctypes.c_int64 * max(count, 1))()
            lib.cz_ddp_bucket_params(self._ptr, bucket, numbers, count)
            found.append(numbers[:count])
        return found

    def _info(self):
        info = c.cz_ddp_info()
        call(lib.cz_ddp_get_info(self._ptr, info))
        return info


class Bucket:
    """One bucket of one pass, as a hook sees it, until all has ended that the hook started; after
    the pass it raises StateError."""

    def __init__(self, handle, thrown, kept, end):
        self._handle, self._thrown, self._kept = handle, thrown, kept
        self._live, self._end = kept["live"], end

    @property
    def _ptr(self):
        if not self._live[0] or not self._end.alive:
            raise errors.StateError("this Bucket has ended with the pass that it belonged to")
        return self._handle

    def _info(self):
        info = c.cz_bucket_info()
        call(lib.cz_bucket_get_info(self._ptr, info))
        return info

    @property
    def index(self) -> int:
        return self._info().index

    @property
    def is_last(self) -> bool:
        """It starts last in this pass."""
        return bool(self._info().is_last)

    @property
    def passes(self) -> int:
        """How many passes have synchronised and succeeded before this one."""
        return getattr(self._info(), "pass")

    @property
    def world_size(self) -> int:
        return lib.cz_group_size(self._info().group)

    @property
    def rank(self) -> int:
        return lib.cz_group_rank(self._info().group)

    @property
    def buffer(self) -> typing.Any:
        """Gradients one after the other, a flat array in place; those that this rank has not
        marked are zeros."""
        info = self._info()
        return _arrays.at(info.buffer, _arrays.BY_NUMBER[info.dtype], (info.count,), None)

    @property
    def params(self) -> list[tuple[int, int]]:
        """A list of (number of the parameter, where its gradient begins in the buffer)."""
        found = []
        for place in range(self._info().param_count):
            one = c.cz_bucket_param()
            call(lib.cz_bucket_get_param(self._ptr, place, one))
            found.append((one.param, one.offset))
        return found

    def memory(self, dtype: str, count: int) -> typing.Any:
        """A flat array that lives until the bucket's work has ended, for other forms of it."""
        address = ctypes.c_void_p()
        call(lib.cz_bucket_memory(self._ptr, lib.cz_device_cpu(),
                                  count * _arrays.SIZES[dtype], ctypes.byref(address)))
        return _arrays.at(address.value, dtype, (count,), None)

    def all_reduce(self, op: str = "average", array: typing.Any = None) -> None:
        """Start an all-reduce of the buffer, or of an array of :meth:`memory`."""
        info = self._info()
        if array is None:
            address, count, number = info.buffer, info.count, info.dtype
        else:
            one = _arrays.view(array, "array")
            address, count, number = one.address, one.count, one.number
        call(lib.cz_all_reduce(info.group, address, count, number, _op(op), None))

    def reduce(self, op: str = "average") -> None:
        """Start the reduction of every element to its owner: what is done without a hook."""
        call(lib.cz_bucket_reduce(self._ptr, _op(op)))

    def then(self, function: collections.abc.Callable[[Bucket], None]) -> None:
        """Call ``function(bucket)`` once all has ended that was started, unless it failed; it
        writes to the buffer and starts nothing."""
        def last(status, _):
            if status == c.CZ_OK:
                function(self)

        @called
        def guarded(status, context):
            if status != c.CZ_OK:
                return status
            return self._thrown.guard(last)(status, context)
        callback = c.cz_continuation(guarded)
        if self._kept["pass"] != self.passes:  # those of the pass before have all been called
            self._kept["pass"], self._kept["then"] = self.passes, []
        self._kept["then"].append(callback)
        call(lib.cz_bucket_then(self._ptr, callback, None))
