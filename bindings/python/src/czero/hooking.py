# SPDX-License-Identifier: MIT
"""States of the library's communication hooks, for those that have more to say than a name."""
from __future__ import annotations

import ctypes
import typing

from . import _declarations as c
from . import errors, state
from ._library import Handle, call, lib, text, use

if typing.TYPE_CHECKING:
    from .group import Group
    from .model import Model


def hooks() -> list[str]:
    """The names of all hooks, for :meth:`DDP.register_hook`: "fp16_compress", "powersgd", …"""
    names: list[str] = []
    while (name := lib.cz_hook_name(len(names))) is not None:
        names.append(name.decode())
    return names


class PowerSGD(Handle):
    """The state of "powersgd": gradients travel as products of two thin matrices, and what that
    leaves out is added to the next ones (Vogels et al., arXiv:1905.13727)::

        ddp.register_hook("powersgd", czero.PowerSGD(model, rank=4, start_iter=100))

    It lives as long as the DDP that has it. Local; options alike on all ranks.

    Args:
        model: of the DDP; kept alive.
        rank: columns of the matrices.
        start_iter: passes before that one have the mean as usual; 0: 1000; -1: none.
        min_compression_rate: what would not get shorter by that factor travels as it is; 0: 2.
        drop_errors: what is left out is lost.
        cold_start: each pass begins with random numbers.
        batched: a bucket is one matrix: faster, less exact.
        epsilon: added to the norms of columns.
        seed: of the random numbers.

    Raises:
        ArgumentError: an option out of its range.
    """

    _destroy = "cz_powersgd_destroy"

    def __init__(self, model: Model, *, rank: int = 1, start_iter: int = 0,
                 min_compression_rate: float = 0.0, drop_errors: bool = False,
                 cold_start: bool = False, batched: bool = False, epsilon: float = 0.0,
                 seed: int = 0):
        self.model = model
        handle = ctypes.c_void_p()
        call(lib.cz_powersgd_create(ctypes.byref(handle), model._ptr, c.cz_powersgd_options(
            rank=rank, start_iter=start_iter, min_compression_rate=min_compression_rate,
            drop_errors=drop_errors, cold_start=cold_start, batched=batched, epsilon=epsilon,
            seed=seed)))
        self._own(handle, needs=(model,))

    @property
    def compression(self) -> tuple[int, int]:
        """Elements of gradients in passes that were compressed, and what travelled for them."""
        stats = c.cz_powersgd_stats()
        call(lib.cz_powersgd_get_stats(self._ptr, stats))
        return stats.before, stats.after

    def state_dict(self) -> dict:
        """What has to be kept over a restart; each rank has its own."""
        handle = ctypes.c_void_p()
        call(lib.cz_powersgd_state_dict(self._ptr, ctypes.byref(handle)))
        return state.take(handle)

    def load_state_dict(self, values: dict) -> None:
        """Go on from there: each rank from its own; on another number of ranks from anyone's, but
        for "errors"."""
        with state.Given(values) as handle:
            call(lib.cz_powersgd_load_state_dict(self._ptr, handle))


class PostLocalSGD:
    """The state of "post_local_sgd": gradients are averaged over all ranks at first, then over a
    block of them, while an :class:`Averager` brings parameters together (Lin et al.,
    arXiv:1808.07217). Passes are those of the DDP. Alike on all ranks, or a pass raises
    MismatchError. Local.

    Args:
        start_iter: passes before that one are over all ranks.
        subgroup: this rank's block, of ``group.split()``; None: those on its machine. Kept alive.
        local_gradients: later passes leave each rank its own gradient.
    """

    def __init__(self, start_iter: int, *, subgroup: Group | None = None,
                 local_gradients: bool = False):
        self._subgroup = subgroup
        self._state = c.cz_post_local_sgd(start_iter=start_iter, local_gradients=local_gradients,
                                          subgroup=subgroup and subgroup._ptr)


_NAMES = {PowerSGD: "powersgd", PostLocalSGD: "post_local_sgd"}
_WRAPPERS = (str, PowerSGD, PostLocalSGD)
# What each hook's state is; the library cannot tell one address from another.
_STATES = {"powersgd": PowerSGD, "post_local_sgd": PostLocalSGD, "fp16_compress": _WRAPPERS,
           "bf16_compress": _WRAPPERS, "quantize_per_channel": int}
_THEIRS = {"POWER_SGD": "powersgd", "FP16_COMPRESS": "fp16_compress",
           "BF16_COMPRESS": "bf16_compress", "QUANTIZE_PER_CHANNEL": "quantize_per_channel"}


def register(ddp, name, given):
    """A hook by its name, with the state that it takes."""
    kind = _STATES.get(_THEIRS.get(name, name), ())
    if given is not None and not isinstance(given, kind):
        raise errors.ArgumentError(f"hook '{name}' takes {_wanted(kind)}, not {given!r}")
    keep, address = [], None
    if isinstance(given, Handle):
        keep.append(use(given))
        address = given._ptr
    if isinstance(given, PostLocalSGD):
        keep.append(given)
        address = ctypes.addressof(given._state)
    if isinstance(given, int):
        number = ctypes.c_int64(given)
        keep.append(number)
        address = ctypes.addressof(number)
    elif given is not None and kind is _WRAPPERS:
        inner = c.cz_hook()
        keep.append(inner)
        found = given if isinstance(given, str) else _NAMES[type(given)]
        call(lib.cz_hook_find(inner, text(found), ddp.model._ptr, address))
        address = ctypes.addressof(inner)
    status = lib.cz_ddp_register_hook_by_name(ddp._ptr, text(name), address)
    if status != c.CZ_OK and keep and isinstance(keep[-1], c.cz_hook) and inner.release:
        sentence = lib.cz_last_error()
        inner.release(inner.state)
        lib.cz_fail_text(status, sentence)
    call(status)
    return keep


def _wanted(kind):
    if not kind:
        return "no state here"
    kinds = kind if isinstance(kind, tuple) else (kind,)
    words = {str: "the name of another hook", int: "a number of elements"}
    return " or ".join(words.get(one, f"a czero.{one.__name__}") for one in kinds)
