# SPDX-License-Identifier: MIT
"""Model averaging: each rank trains on its own, and now and then parameters become the mean."""
from __future__ import annotations

import collections.abc
import ctypes
import typing

from . import _declarations as c
from . import errors, state
from ._library import Handle, call, lib

if typing.TYPE_CHECKING:
    from .group import Group
    from .model import Model


class Averager(Handle):
    """Counts steps, and replaces the parameters of all ranks by their mean after every so many::

        averager = czero.Averager(group, model, 16, warmup_steps=100)
        for batch in batches:
            …                          # gradients of this rank's examples
            optim.step()               # a czero.Optim: on its own
            averager.average()

    In the warm-up gradients are to be the mean over ranks: with a :class:`DDP` and the hook
    "post_local_sgd" (:class:`PostLocalSGD`) that ends by itself. Collective.

    Args:
        group, model: kept alive.
        period: steps between two averagings over all ranks; or, of several levels, a list of
            (period, ranks): blocks of so many neighbouring ranks, with periods that ascend and the
            last one over all ranks. The last counts whose period divides the steps.
        warmup_steps: before the first averaging, which is at the step after them.
        allow_no_gradients: where no trainable parameter has a gradient on any rank nothing is
            averaged; otherwise that is a StateError, since gradients say what is averaged.

    Raises:
        ArgumentError, MismatchError, UnsupportedError: as in czero/averaging.h.
    """

    _destroy = "cz_averager_destroy"

    def __init__(self, group: Group, model: Model,
                 period: int | collections.abc.Sequence[tuple[int, int]], *, warmup_steps: int = 0,
                 allow_no_gradients: bool = False):
        self.group, self.model = group, model
        handle = ctypes.c_void_p()
        options = c.cz_averager_options(warmup_steps=warmup_steps,
                                        allow_no_gradients=allow_no_gradients)
        if hasattr(period, "__index__"):
            period = [(period, group.size)]
        call(lib.cz_averager_create_hierarchical(ctypes.byref(handle), group._ptr, model._ptr,
                                                 _levels(period), len(period), options))
        self._own(handle, group=group, needs=(group, model))

    def average(self) -> int:
        """After a step: average if it is time, and count the step. Collective where it averages,
        over the ranks that are averaged together; these have the same bits afterwards.

        Returns:
            How many ranks were averaged; 0: it was not time.

        Raises:
            MismatchError: ranks are at different steps, or have frozen different parameters.
            StateError: no gradients. Nothing was changed, and the step was not counted.
        """
        ranks = ctypes.c_int()
        call(lib.cz_averager_average(self._ptr, ctypes.byref(ranks)))
        return ranks.value

    def state_dict(self) -> dict:
        """``{"step": steps counted}``."""
        handle = ctypes.c_void_p()
        call(lib.cz_averager_state_dict(self._ptr, ctypes.byref(handle)))
        return state.take(handle)

    def load_state_dict(self, values: dict) -> None:
        """Go on from there, alike on all ranks."""
        with state.Given(values) as handle:
            call(lib.cz_averager_load_state_dict(self._ptr, handle))


def _levels(given):
    try:
        pairs = [(int(period), int(ranks)) for period, ranks in given]
    except (TypeError, ValueError):
        raise errors.ArgumentError("period is a number of steps, or a list of (period, ranks), not "
                                   f"{given!r}") from None
    array = (c.cz_averager_level * max(len(pairs), 1))()
    for level, (period, ranks) in zip(array, pairs):
        level.size = ctypes.sizeof(level)
        level.period, level.ranks = period, ranks
    return array
