# SPDX-License-Identifier: MIT
"""Parts of a batch: a training whose every bit is the same on any number of ranks."""
from __future__ import annotations

import ctypes
import typing

from . import _declarations as c
from . import errors
from ._library import Handle, call, lib

if typing.TYPE_CHECKING:
    from .group import Group
    from .model import Model


class Parts(Handle):
    """The parts of one rank, and the gradients that it has added up in the present step::

        parts = czero.Parts(group, model, 12)
        zero = czero.Zero(group, model, "adamw", lr=1e-3, parts=parts)
        for part in parts.own:
            …                          # gradients of that part's examples, from zero
            parts.add()
        zero.step()

    Collective. `count`: of parts in all, at least as many as ranks.
    """

    _destroy = "cz_parts_destroy"

    def __init__(self, group: Group, model: Model, count: int):
        self.group, self.model = group, model
        handle = ctypes.c_void_p()
        call(lib.cz_parts_create(ctypes.byref(handle), group._ptr, model._ptr,
                                 c.cz_parts_options(count=count)))
        self._own(handle, group=group, needs=(group, model))

    @property
    def own(self) -> list[int]:
        """This rank's parts, in the order in which it runs them."""
        found: list[int] = []
        while (part := lib.cz_parts_own(self._ptr, len(found))) >= 0:
            found.append(part)
        return found

    @property
    def is_last(self) -> bool:
        """Is the part that comes next this rank's last one of the step?"""
        return lib.cz_parts_is_last(self._ptr)

    def add(self) -> None:
        """The gradients of the model are those of this rank's next part: add them up."""
        call(lib.cz_parts_add(self._ptr))

    def restart(self) -> None:
        """Forget what this rank has added since the last step."""
        call(lib.cz_parts_restart(self._ptr))

    def set_weights(self, weights: list[float] | None = None) -> None:
        """What each of this rank's parts counts for in the mean, in the order of :attr:`own`; None
        on all ranks: alike. Collective; a list of another length is refused on all ranks."""
        listed, own = None, len(self.own)
        if weights is not None:
            weights = list(weights)
            given = weights if len(weights) == own else [-1.0] * own  # which C refuses
            listed = (ctypes.c_double * own)(*given)
        status = lib.cz_parts_set_weights(self._ptr, listed)
        if weights is not None and len(weights) != own:
            raise errors.ArgumentError(f"there are {len(weights)} weights, and this rank has {own} "
                                       "parts")
        call(status)
