# SPDX-License-Identifier: MIT
"""Which examples of a data set a rank takes next."""
from __future__ import annotations

import ctypes
import typing

from . import _arrays
from . import _declarations as c
from ._library import Handle, call, lib

if typing.TYPE_CHECKING:
    from .group import Group


class Sampler(Handle):
    """Deals out the numbers of a data set's samples to ranks, in another order in each epoch, for
    ever::

        sampler = czero.Sampler(60000, 256, group)
        for step in range(steps):
            batch = images[next(sampler)]

    The ranks' samples of a step are the same on any number of ranks, whose parts of it are as equal
    as possible. Local.

    Args:
        sample_count: of the data set.
        global_batch: samples per step, of all ranks.
        group: None: there is one rank.
        seed: of the order, alike on all ranks.
        in_order: epochs run through the samples as they are.
        part_count: of :class:`Parts`; then each ``next()`` is for this rank's next part.

    Raises:
        ArgumentError: a number out of its range.
    """

    _destroy = "cz_sampler_destroy"

    def __init__(self, sample_count: int, global_batch: int, group: Group | None = None, *,
                 seed: int = 0, in_order: bool = False, part_count: int = 0):
        handle = ctypes.c_void_p()
        call(lib.cz_sampler_create(ctypes.byref(handle), c.cz_sampler_options(
            sample_count=sample_count, global_batch=global_batch, seed=seed, in_order=in_order,
            part_count=part_count, rank=0 if group is None else group.rank,
            world_size=1 if group is None else group.size)))
        self._own(handle)

    def __iter__(self) -> Sampler:
        return self

    def __next__(self) -> typing.Any:
        """This rank's samples of the next step: a flat array of i64, empty where there are fewer
        samples than ranks."""
        array, address = _arrays.empty("i64", (self._info().local_batch,))
        count = ctypes.c_int64()
        call(lib.cz_sampler_next(self._ptr,
                                 ctypes.cast(address, ctypes.POINTER(ctypes.c_int64)),
                                 ctypes.byref(count)))
        return array[:count.value]

    @property
    def position(self) -> int:
        """Samples of all ranks since the beginning, to be saved; set it to go on from there, on any
        number of ranks."""
        return self._info().position

    @position.setter
    def position(self, count):
        call(lib.cz_sampler_set_position(self._ptr, count))

    def _info(self):
        info = c.cz_sampler_info()
        call(lib.cz_sampler_get_info(self._ptr, info))
        return info
