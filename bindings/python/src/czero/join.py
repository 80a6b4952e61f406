# SPDX-License-Identifier: MIT
"""Uneven inputs: ranks whose inputs are used up accompany the others until all have ended."""
from __future__ import annotations

import ctypes

from . import _declarations as c
from . import errors
from ._library import Thrown, call, choice, lib, status_of
from .ddp import DDP
from .group import Group
from .optim import Optim, Zero


class Joinable:
    """Something with collective calls of its own, to be joined: make a class of it. Each of its
    calls begins with :meth:`notify`."""

    _join = None

    def notify(self) -> None:
        """This object is about to make its collective operations: ranks that have joined answer
        with :meth:`shadow`. Nothing happens outside of a join."""
        if self._join is not None:
            self._join._check(lib.cz_join_notify(self._join._handle, self._number))

    def enter(self) -> None:
        """The join begins."""

    def shadow(self) -> None:
        """Another rank has notified: make the same collective operations, contributing nothing."""

    def finish(self, is_last: bool) -> None:
        """All ranks have joined. Collective; `is_last`: this rank was one of the last."""

    def abandon(self) -> None:
        """The loop failed here: end what others wait for."""


class Join:
    """Train with uneven inputs::

        with czero.Join(group, [ddp, zero]):
            for batch in batches:      # of any number on each rank
                …

    Leaving the block waits until all ranks have left theirs. An exception in it ends the loops of
    all ranks, which get an error with its text.

    Args:
        joinables: of :class:`DDP`, :class:`Zero`, :class:`Optim` and :class:`Joinable`.
        divide: what gradients are divided by while some ranks have joined: "world", "active", or
            "weight".
        end_early: as soon as a rank has joined all end, with StateError.
        enable: False: inputs are even, and nothing is sent.
    """

    def __init__(self, group: Group, joinables: list, *, divide: str = "world",
                 end_early: bool = False, enable: bool = True):
        self.group, self.joinables = group, list(joinables)
        self._options = c.cz_join_options(
            divide=choice("divide", "cz_join_divide", "CZ_JOIN_BY_", divide), end_early=end_early,
            disabled=not enable)
        self._handle, self._thrown = ctypes.c_void_p(), Thrown()
        self._kept: list = []  # functions that the library calls

    def __enter__(self):
        array = (c.cz_joinable * max(len(self.joinables), 1))()
        for place, one in enumerate(self.joinables):
            array[place].size = ctypes.sizeof(c.cz_joinable)
            if isinstance(one, Zero):
                call(lib.cz_zero_joinable(one._ptr, array[place]))
            elif isinstance(one, DDP):
                call(lib.cz_ddp_joinable(one._ptr, array[place]))
            elif isinstance(one, Optim):
                call(lib.cz_optim_joinable(one._ptr, array[place]))
            elif isinstance(one, Joinable):
                self._fill(array[place], one)
            else:
                raise errors.ArgumentError(f"joinable {place} is a {type(one).__name__}; there are "
                                           "DDP, Zero, Optim and classes made of Joinable")
        self._check(lib.cz_join_begin(ctypes.byref(self._handle), self.group._ptr, array,
                                      len(self.joinables), self._options))
        return self

    def _fill(self, entry, one):
        guard = self._thrown.guard

        def enter(_, join, number):
            one._join, one._number = (self, number) if join else (None, -1)
            if join:
                one.enter()

        def finish(_, join):
            info = c.cz_join_info()
            call(lib.cz_join_get_info(join, info))
            one.finish(bool(info.is_last))
        entry.name = type(one).__name__.encode()
        entry.enter = type(entry.enter)(guard(enter))
        entry.shadow = type(entry.shadow)(guard(lambda *_: one.shadow()))
        entry.finish = type(entry.finish)(guard(finish))
        entry.abandon = type(entry.abandon)(lambda *_: guard(one.abandon)() and None)
        self._kept += [entry.enter, entry.shadow, entry.finish, entry.abandon]

    def __exit__(self, _kind, exception, _traceback):
        body = c.CZ_OK if exception is None else status_of(exception)
        status = lib.cz_join_end(ctypes.byref(self._handle), body)
        for joined in self.joinables:
            if isinstance(joined, DDP):  # it has made passes for other ranks
                joined._end_buckets()
        if exception is None:
            self._check(status)
        return False  # the exception of the block goes on

    def _check(self, status):
        call(status, self._thrown)
