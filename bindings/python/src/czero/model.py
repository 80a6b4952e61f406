# SPDX-License-Identifier: MIT
"""The model: named parameters with gradients, and buffers, in memory of the program's own."""
from __future__ import annotations

import collections.abc
import ctypes
import math
import typing

from . import _arrays, _limits
from . import _declarations as c
from . import errors
from ._library import Handle, call, lib, text


class Model(Handle):
    """The ordered parameters and buffers of a program. It refers to arrays and never copies them;
    it keeps them alive, and they must stay where they are (``array[:] = …``, not ``array = …``).

    Parameters are given to other calls by name, or by their number in the order of additions.
    """

    _destroy = "cz_model_destroy"

    def __init__(self, tensors: dict[str, typing.Any] | None = None):
        """An empty model, or one of ``{name: (value, gradient)}``, ``{name: value}``."""
        handle = ctypes.c_void_p()
        call(lib.cz_model_create(ctypes.byref(handle)))
        self._own(handle)
        self._arrays: dict = {}
        self._blocks: dict = {}  # of each parameter in one: the numbers of all, and its values
        for name, given in (tensors or {}).items():
            self.add(name, *(given if isinstance(given, (tuple, list)) else (given,)))

    def add(self, name: str, value: typing.Any, gradient: typing.Any = None) -> int:
        """Append a parameter.

        Args:
            name: unique in the model.
            value: an array of any shape, of type f32, f64, f16, bf16 (or an integer type, if it is
                never trained), row-major, on the CPU.
            gradient: of the same shape and type; None: there is none (now).

        Returns:
            Its number.

        Raises:
            ArgumentError: a name that is taken; arrays with gaps, that are read-only, on another
                device or of other types, or that differ.
            StateError: an optimizer was built on the model.
        """
        here = _arrays.view(value, f"the value of '{name}'")
        there = self._gradient(name, here, gradient)
        number = len(self)
        tensor = here.tensor()
        call(lib.cz_model_add_tensor(self._ptr, text(name), tensor, there and there.tensor()))
        self._arrays[number] = (here, there)
        return number

    def add_flat(self, values: typing.Any, gradients: typing.Any,
                 views: dict[str, collections.abc.Sequence[int] | int]) -> list[int]:
        """Append the parameters of one block of values and one of gradients, such as those of a
        program in C: one after the other, without gaps. Shards are then even pieces of the block.

        ::

            model.add_flat(params, grads, {"wte": (vocab, channels),
                                           "h.*.ln_1.weight": (layers, channels)})

        Args:
            values: an array of any shape, as for :meth:`add`.
            gradients: of the same size and type; None: see :meth:`set_flat_gradients`.
            views: names and shapes, in the order of the block. With a "*" in the name the first
                dimension is of layers: each is a parameter, with its number for the "*".

        Returns:
            Their numbers.

        Raises:
            ArgumentError: as :meth:`add`; the block is not as large as its views. Nothing was
                added.
        """
        here = _arrays.view(values, "the block of values")
        there = self._flat_gradients(here, gradients)
        array, total = (c.cz_view * max(len(views), 1))(), 0
        for place, (name, shape) in enumerate(views.items()):
            shape = [shape] if isinstance(shape, int) else list(shape)
            total += math.prod(shape)
            if "*" in name:
                if not shape:
                    raise errors.ArgumentError(f"view '{name}' has no dimension for its layers")
                array[place].layers = shape.pop(0)
            if len(shape) > c.CZ_MAX_DIMENSIONS:
                raise errors.ArgumentError(f"view '{name}' has {len(shape)} dimensions; there may "
                                           f"be {c.CZ_MAX_DIMENSIONS}")
            array[place].name, array[place].dimensions = text(name), len(shape)
            array[place].shape[:len(shape)] = _limits.array(
                ctypes.c_int64, shape, f"the shape of '{name}'")[:len(shape)]
        if total != here.count:
            raise errors.ArgumentError(f"the views have {total} elements, the block of values "
                                       f"{here.count}")
        first = len(self)
        call(lib.cz_model_add_views(self._ptr, here.address, there and there.address, here.number,
                                    array, len(views)))
        numbers = range(first, len(self))
        for number in numbers:
            tensor = self._get(number).value.contents
            self._arrays[number] = (_arrays.View(tensor.data, here.dtype,
                                                 tensor.shape[:tensor.dimensions], here), None)
            self._blocks[number] = (numbers, here)
        self._take_flat(numbers, here, there)
        return list(numbers)

    def set_flat_gradients(self, param: str | int, gradients: typing.Any) -> None:
        """Say where the gradients of a whole block of :meth:`add_flat` are from now on, or with
        None that there are none. Between steps.

        Args:
            param: any parameter of the block.
        """
        number = self.index(param)
        if number not in self._blocks:
            raise errors.ArgumentError(f"parameter '{param}' is in no block of add_flat()")
        numbers, here = self._blocks[number]
        there = self._flat_gradients(here, gradients)
        call(lib.cz_model_set_gradients_flat(self._ptr, number, there and there.address))
        self._take_flat(numbers, here, there)

    @staticmethod
    def _flat_gradients(values, gradients):
        if gradients is None:
            return None
        there = _arrays.view(gradients, "the block of gradients")
        if (there.count, there.dtype) != (values.count, values.dtype):
            raise errors.ArgumentError(f"the block of gradients is of {there.count} {there.dtype}, "
                                       f"that of values of {values.count} {values.dtype}")
        return there

    def _take_flat(self, numbers, values, gradients):
        """Keep the arrays of each parameter of a block."""
        at = 0
        for number in numbers:
            here, there = self._arrays[number][0], None
            if gradients is not None:
                there = _arrays.View((gradients.address or 0) + at * _arrays.SIZES[values.dtype],
                                     here.dtype, here.shape, gradients)
            self._arrays[number] = (here, there)
            at += here.count

    def add_buffer(self, name: str, value: typing.Any) -> None:
        """Append a tensor that is part of the model but not trained, such as a running mean."""
        here = _arrays.view(value, f"buffer '{name}'")
        shape = (ctypes.c_int64 * len(here.shape))(*here.shape)
        call(lib.cz_model_add_buffer(self._ptr, text(name), here.address, here.number,
                                     len(here.shape), shape))
        self._arrays[name] = (here, None)

    def set_gradient(self, param: str | int, gradient: typing.Any) -> None:
        """Say where a gradient is from now on, or with None that there is none: such a parameter
        is skipped by a step. Between steps."""
        number = self.index(param)
        here, _ = self._arrays[number]
        there = self._gradient(param, here, gradient)
        call(lib.cz_model_set_gradient(self._ptr, number, there and there.address))
        self._arrays[number] = (here, there)

    @staticmethod
    def _gradient(name, value, gradient):
        if gradient is None:
            return None
        there = _arrays.view(gradient, f"the gradient of '{name}'")
        if (there.shape, there.dtype) != (value.shape, value.dtype):
            raise errors.ArgumentError(
                f"the gradient of '{name}' is {there.dtype} of shape {there.shape}, its value "
                f"{value.dtype} of shape {value.shape}")
        return there

    def set_requires_grad(self, param: str | int, requires_grad: bool) -> None:
        """Freeze (False) or unfreeze (True) a parameter, alike on every rank, between steps:
        frozen ones have no reduction, no update and no state."""
        call(lib.cz_model_set_requires_grad(self._ptr, self.index(param), requires_grad))

    def requires_grad(self, param: str | int) -> bool:
        return bool(self._get(self.index(param)).requires_grad)

    def value(self, param: str | int) -> typing.Any:
        """The parameter's memory as an array, where it is now (an optimizer with
        ``parameters_as_bucket_view`` moves it)."""
        number = self.index(param)
        found = self._get(number).value.contents
        shape = found.shape[:found.dimensions]
        return _arrays.at(found.data, _arrays.BY_NUMBER[found.dtype], shape,
                          (self, self._arrays[number]))

    def zero_grad(self) -> None:
        """Set every gradient that is present to zero."""
        call(lib.cz_model_zero_grad(self._ptr))

    def index(self, param: str | int) -> int:
        """The number of a parameter. KeyError for a name, IndexError for a number that is not
        there."""
        if isinstance(param, str):
            number = -1 if "\0" in param else lib.cz_model_find(self._ptr, param.encode())
            if number < 0:
                raise KeyError(f"there is no parameter '{param}' in the model")
            return number
        if not 0 <= param < len(self):
            raise IndexError(f"there is no parameter {param} in a model of {len(self)}")
        return param

    def _get(self, number):
        found = c.cz_model_param()
        call(lib.cz_model_get_param(self._ptr, number, found))
        return found

    def name(self, number: int) -> str:
        """The name of a parameter, by its number."""
        return self._get(self.index(number)).name.decode()

    @property
    def names(self) -> list[str]:
        """The names of all parameters, in order."""
        return [self.name(number) for number in range(len(self))]

    def __len__(self) -> int:
        info = c.cz_model_info()
        call(lib.cz_model_get_info(self._ptr, info))
        return info.param_count

    def check_replicas(self, group, parameters_only: bool = False) -> None:
        """Do all ranks hold the same bits in every parameter and buffer? Collective.

        Raises:
            MismatchError: they do not; the sentence names the first tensor that differs, and whose.
        """
        options = c.cz_replicas_options(parameters_only=parameters_only)
        call(lib.cz_model_check_replicas(group._ptr, self._ptr, options))
