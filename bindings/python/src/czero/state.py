# SPDX-License-Identifier: MIT
"""State dictionaries: what the library keeps in one is a dictionary of Python's here, of int,
float, str, lists of str, arrays, and dictionaries; always a copy."""
import ctypes
import math
import sys

from . import _arrays, _limits
from . import _declarations as c
from . import errors
from ._library import call, lib


def take(handle):
    """Make a dictionary of Python's of one of the library's, which is freed."""
    try:
        return _read(handle)
    finally:
        lib.cz_state_dict_destroy(ctypes.byref(handle))


def _read(handle):
    found = {}
    for index in range(max(lib.cz_state_dict_count(handle), 0)):
        key = lib.cz_state_dict_key(handle, index)
        found[key.decode()] = _READERS[lib.cz_state_dict_kind(handle, key)](handle, key)
    return found


def _scalar(function, kind):
    def read(handle, key):
        value = kind()
        call(getattr(lib, function)(handle, key, ctypes.byref(value)))
        return value.value
    return read


def _text(handle, key):
    return _scalar("cz_state_dict_get_text", ctypes.c_char_p)(handle, key).decode()


def _texts(handle, key):
    texts, count = ctypes.POINTER(ctypes.c_char_p)(), ctypes.c_int64()
    call(lib.cz_state_dict_get_texts(handle, key, ctypes.byref(texts), ctypes.byref(count)))
    return [one.decode() for one in texts[:count.value]]


def _tensor(handle, key):
    view = c.cz_tensor()
    call(lib.cz_state_dict_get_tensor(handle, key, view))
    array, address = _arrays.empty(_arrays.BY_NUMBER[view.dtype], view.shape[:view.dimensions])
    bytes_ = math.prod(view.shape[:view.dimensions]) * lib.cz_dtype_size(view.dtype)
    if bytes_:
        ctypes.memmove(address, view.data, bytes_)
    return array


def _dict(handle, key):
    child = ctypes.c_void_p()
    call(lib.cz_state_dict_get_dict(handle, key, ctypes.byref(child)))
    return _read(child)


_READERS = {
    c.CZ_STATE_INTEGER: _scalar("cz_state_dict_get_integer", ctypes.c_int64),
    c.CZ_STATE_REAL: _scalar("cz_state_dict_get_real", ctypes.c_double),
    c.CZ_STATE_TEXT: _text, c.CZ_STATE_TEXTS: _texts, c.CZ_STATE_TENSOR: _tensor,
    c.CZ_STATE_DICT: _dict,
}


class Given:
    """A dictionary of the library's, made of one of Python's: for the length of a ``with``."""

    def __init__(self, values):
        self._values = values
        self.handle = ctypes.c_void_p()

    def __enter__(self):
        if self._values is not None:
            call(lib.cz_state_dict_create(ctypes.byref(self.handle)))
            try:
                _write(self.handle, self._values, "")
            except BaseException:
                self.__exit__()
                raise
        return self.handle

    def __exit__(self, *_):
        lib.cz_state_dict_destroy(ctypes.byref(self.handle))


def _write(handle, values, path):
    for name, value in values.items():
        where = f"{path}{name}"
        if not isinstance(name, str):
            raise errors.ArgumentError(f"keys of a state dictionary are texts; '{path}' has "
                                       f"{name!r}")
        key = name.encode()
        if (numpy := sys.modules.get("numpy")) and isinstance(value, numpy.generic):
            value = value.item()  # a scalar of NumPy's, such as the mean of an array
        if isinstance(value, int):
            if not -2**63 <= value < 2**63:
                raise errors.ArgumentError(f"'{where}' is {value}, which is no number of 64 bits; "
                                           "larger ones go into a text, or an array")
            call(lib.cz_state_dict_set_integer(handle, key, value))
        elif isinstance(value, float):
            call(lib.cz_state_dict_set_real(handle, key, value))
        elif isinstance(value, str):
            call(lib.cz_state_dict_set_text(handle, key, value.encode()))
        elif isinstance(value, dict):
            child = ctypes.c_void_p()
            call(lib.cz_state_dict_add_dict(handle, key, ctypes.byref(child)))
            _write(child, value, where + "/")
        elif isinstance(value, (list, tuple)):
            if not all(isinstance(one, str) for one in value):
                raise errors.ArgumentError(f"'{where}' is a list of something else than texts; "
                                           "numbers go into an array")
            texts = _limits.array(ctypes.c_char_p, [one.encode() for one in value], f"'{where}'")
            call(lib.cz_state_dict_set_texts(handle, key, texts, len(value)))
        else:
            here = _arrays.view(value, f"'{where}'", written=False)
            call(lib.cz_state_dict_set_tensor(handle, key, here.tensor()))
