# SPDX-License-Identifier: MIT
"""What numbers and texts C can take. ctypes keeps the low bits of a number that is too large, and
C reads a text to its first NUL: neither says a word, so both are refused here."""
import ctypes
import operator

_RANGES = {}
for _kind in (ctypes.c_int, ctypes.c_uint, ctypes.c_int32, ctypes.c_uint32, ctypes.c_int64,
              ctypes.c_uint64, ctypes.c_size_t):
    _bits = 8 * ctypes.sizeof(_kind) - (_kind(-1).value < 0)
    _RANGES[_kind] = (-2**_bits if _kind(-1).value < 0 else 0, 2**_bits - 1)


def limited(kind):
    """Are there values of Python's that a `kind` of ctypes' would change?"""
    return kind in _RANGES or kind is ctypes.c_char_p


def fit(what, kind, value):
    """Refuse a value that a `kind` would change. What it does not take at all is ctypes' affair.

    Raises:
        ArgumentError: `what` is outside of the range, or has a NUL.
    """
    if kind is ctypes.c_char_p:
        if isinstance(value, bytes) and b"\0" in value:
            _refuse(f"{what} is {value.decode(errors='replace')!r}; texts have no NUL in them")
    elif hasattr(value, "__index__"):
        least, most = _RANGES[kind]
        if not least <= operator.index(value) <= most:
            _refuse(f"{what} is {value}; wanted is a whole number from {least} to {most}")


def _refuse(sentence):
    from . import errors  # which needs the declarations, which need this module
    raise errors.ArgumentError(sentence)


def array(kind, values, what):
    """An array for C of a list of `kind`; of at least one element, since C wants an address."""
    values = list(values)
    for place, value in enumerate(values):
        fit(f"{what}[{place}]", kind, value)
    return (kind * max(len(values), 1))(*values)
