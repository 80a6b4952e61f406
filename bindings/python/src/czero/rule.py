# SPDX-License-Identifier: MIT
"""Update rules written in Python."""
from __future__ import annotations

import collections.abc
import ctypes
import math
import operator

from . import _arrays
from . import _declarations as c
from . import errors
from ._library import Thrown, called, lib

MOST_HYPERS = c.CZ_RULE_COEFFICIENTS - 1  # the step count goes the same way


class Rule:
    """An update rule of your own, for :class:`Optim`, :class:`Zero` and :func:`plan`, in place of a
    name::

        def clipped(value, gradient, state, hypers, step):
            buffer = state["momentum_buffer"]
            np.clip(hypers["momentum"] * buffer + gradient, -1, 1, out=buffer)
            value -= hypers["lr"] * buffer

        rule = czero.Rule("clipped", clipped, hypers={"lr": None, "momentum": (0.9, 0, 1)},
                          slots=["momentum_buffer"])
        zero = czero.Zero(group, model, rule, lr=0.1)

    Args:
        name: what a state dictionary and a checkpoint say; alike on all ranks, as is all else.
        update: called with arrays of some elements of one parameter, flat and of the parameter's
            type: its values and its state (a dictionary, by slot), which it changes in place, and
            its gradient, which it does not. Where each element's new value depends on that element
            alone the result has the same bits on any number of ranks. `hypers` are numbers by name;
            `step` is the parameter's count of steps, this one included. Several threads may call it
            at once, for different elements.
        hypers: for each hyper-parameter its default, or (default, least, most). A default of None
            has to be given by whoever makes an optimizer. At most 15.
        slots: names of the state that each element has, which starts at 0; or a dictionary with
            what it starts at.
        whole: `update` is given whole parameters, in their shapes. Each then has one owner.
        granule: below which sharding does not cut a parameter: a number of elements, "row" or
            "whole". `update` is still given any part of a parameter.
        cost: of a shape (a tuple), what an update of a whole parameter costs: ranks get about as
            much of it. None: elements.

    An exception in `update` comes out of the step on its rank, whose values and state are then
    undefined; the others have made theirs.

    Raises:
        ArgumentError: `update` is no function; too many hyper-parameters, a default out of its
            range. When an optimizer is made: no name, a name twice.
    """

    def __init__(self, name: str, update: collections.abc.Callable, *,
                 hypers: collections.abc.Mapping | None = None,
                 slots: collections.abc.Iterable[str] | collections.abc.Mapping = (),
                 whole: bool = False, granule: int | str | None = None,
                 cost: collections.abc.Callable[[tuple], float] | None = None):
        self.name, self.update, self.whole = name, update, whole
        self.granule, self.cost = number_of_granule(granule), cost
        self.hypers = {one: _ranged(one, given) for one, given in (hypers or {}).items()}
        self.slots = (dict(slots) if isinstance(slots, collections.abc.Mapping)
                      else {one: 0.0 for one in slots})
        if cost is not None and not callable(cost):
            raise errors.ArgumentError(f"cost of rule '{name}' is a function, not {cost!r}")
        if not callable(update):
            raise errors.ArgumentError(f"update of rule '{name}' is a function, not {update!r}")
        if len(self.hypers) > MOST_HYPERS:
            raise errors.ArgumentError(f"rule '{name}' has {len(self.hypers)} hyper-parameters; "
                                       f"there may be {MOST_HYPERS}")

    def __repr__(self):
        return f"<czero.Rule '{self.name}'>"


def number_of_granule(given: int | str | None) -> int:
    words = {None: 0, "row": c.CZ_GRANULE_ROW, "whole": c.CZ_GRANULE_WHOLE}
    if given is None or isinstance(given, str):
        if given not in words:
            raise errors.ArgumentError(f"granule is a number of elements, 'row' or 'whole', not "
                                       f"{given!r}")
        return words[given]
    number = operator.index(given)
    if not 0 <= number < 1 << 63:
        raise errors.ArgumentError(f"granule is {number}, a number of elements is from 0 on")
    return number


def _ranged(name, given):
    """(default, least, most) of a hyper-parameter."""
    whole = given if isinstance(given, (tuple, list)) else (given, -math.inf, math.inf)
    try:
        initial, least, most = whole
        initial = math.nan if initial is None else float(initial)
        least, most = float(least), float(most)
    except (TypeError, ValueError):
        raise errors.ArgumentError(f"hyper-parameter '{name}' has a default, or (default, least, "
                                   f"most), not {given!r}") from None
    if initial < least or initial > most:
        raise errors.ArgumentError(f"the default of hyper-parameter '{name}', {initial:g}, is not "
                                   f"from {least:g} to {most:g}")
    return initial, least, most


class Table:
    """A rule as one optimizer of the library has it, until that has ended."""

    def __init__(self, rule):
        self.rule, self.thrown, self._failed = rule, Thrown(), False
        self._kernels: dict = {}  # by type
        kinds = dict(c.cz_rule._fields_)
        hypers = (c.cz_hyper_spec * max(len(rule.hypers), 1))()
        for spec, (name, (initial, least, most)) in zip(hypers, rule.hypers.items()):
            spec.name, spec.initial = name.encode(), initial
            spec.minimum, spec.maximum = least, most
        slots = (c.cz_slot_spec * (len(rule.slots) + 1))()
        slots[0].name, slots[0].kind = b"step", c.CZ_SLOT_SCALAR
        for spec, (name, initial) in zip(slots[1:], rule.slots.items()):
            spec.name, spec.kind, spec.initial = name.encode(), c.CZ_SLOT_ELEMENT, initial
        self.table = c.cz_rule(
            abi=c.CZ_RULE_ABI, name=rule.name.encode(), hyper_size=ctypes.sizeof(c.cz_hyper_spec),
            slot_size=ctypes.sizeof(c.cz_slot_spec), hyper_count=len(rule.hypers), hypers=hypers,
            slot_count=len(slots), slots=slots, granule=rule.granule)
        self.table.size = ctypes.sizeof(self.table)
        everything = (1 << len(slots)) - 1
        self.table.slots_used = kinds["slots_used"](lambda _: everything)
        self.table.prepare = kinds["prepare"](called(self._prepare))
        if rule.whole:  # others are given f32 or f64, whatever values are
            self.table.check_param = kinds["check_param"](called(self._check_param))
            self.table.update_tensor = kinds["update_tensor"](called(self._update_tensor))
        if rule.cost is not None:
            self.table.cost = kinds["cost"](called(self._cost))
        self._find = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_int,
                                      ctypes.c_int, ctypes.c_void_p)(called(self._find_kernel))
        self.table.find_kernel = ctypes.cast(self._find, kinds["find_kernel"])

    def _prepare(self, step, coefficients, _flags):
        count = len(self.rule.hypers)
        for place in range(count):
            coefficients[place] = step.contents.hypers[place]
        coefficients[count] = step.contents.step

    def _find_kernel(self, _device, dtype, *_):
        """The address of a kernel, None: there is none for this type."""
        name = _arrays.BY_NUMBER[dtype]
        if not _arrays.calculates(name):
            return None
        if dtype not in self._kernels:
            def kernel(_queue, count, value, gradient, slots, coefficients, _flags):
                self._run(name, (count,), value, gradient, slots, coefficients)
            self._kernels[dtype] = c.cz_update_kernel(called(kernel))
        return ctypes.cast(self._kernels[dtype], ctypes.c_void_p).value

    def _check_param(self, tensor, _context):
        name = _arrays.BY_NUMBER[tensor.contents.dtype]
        if _arrays.calculates(name):
            return c.CZ_OK
        return lib.cz_fail_text(c.CZ_ERR_UNSUPPORTED, f"rule {self.rule.name}: Python does not "
                                f"calculate with {name} here".encode())

    def _cost(self, tensor, _context):
        try:
            return float(self.rule.cost(tuple(tensor.contents.shape[:tensor.contents.dimensions])))
        except BaseException as error:
            self.thrown.keep(error)
            return -1.0  # which is refused

    def _update_tensor(self, update):
        given = update.contents
        param = given.param.contents
        self._run(_arrays.BY_NUMBER[param.dtype], param.shape[:param.dimensions], param.data,
                  given.grad, given.slots, given.coefficients)

    def _run(self, dtype, shape, value, gradient, slots, coefficients):
        if self._failed or 0 in shape:
            return
        rule = self.rule
        try:
            state = {name: _arrays.at(slots[place], dtype, shape, self)
                     for place, name in enumerate(rule.slots)}
            rule.update(_arrays.at(value, dtype, shape, self),
                        _arrays.at(gradient, dtype, shape, self, read_only=True), state,
                        dict(zip(rule.hypers, coefficients[:len(rule.hypers)])),
                        int(coefficients[len(rule.hypers)]))
        except BaseException as exception:  # a kernel cannot fail: it comes out after the step
            self._failed = True
            self.thrown.keep(exception)

    def raise_what_came(self):
        """After a step: what `update` raised in it."""
        if self._failed:
            self._failed = False
            raise self.thrown.take()
