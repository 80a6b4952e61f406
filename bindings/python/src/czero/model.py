# SPDX-License-Identifier: MIT
"""The model: named parameters with gradients, and buffers, in memory of the program's own."""
from __future__ import annotations

import ctypes
import typing

from . import _arrays
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
            number = lib.cz_model_find(self._ptr, param.encode())
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
