# SPDX-License-Identifier: MIT
"""The shared library: found, loaded, and called. While a call runs, other threads of Python do."""
import ctypes
import os
import pathlib
import threading
import weakref

from . import _declarations as c
from . import errors

FOLDER = pathlib.Path(__file__).resolve().parent


def _load():
    """The library in this package; or the file in CZERO_LIBRARY, for work on czero itself."""
    given = os.environ.get("CZERO_LIBRARY")
    places = [pathlib.Path(given)] if given else sorted((FOLDER / "lib").glob("libczero.so*"))
    if not places:
        raise ImportError(f"czero: there is no libczero.so in {FOLDER / 'lib'}: install the "
                          "package (pip install bindings/python), or name one in CZERO_LIBRARY")
    library = ctypes.CDLL(str(places[0]))
    for name, (result, arguments) in c.FUNCTIONS.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            raise ImportError(f"czero: {places[0]} has no {name}(): it is of another version than "
                              "this package") from None
        function.restype, function.argtypes = result, arguments
    return library


lib = _load()


def call(status, thrown=None):
    """Raise what a status means, if it is not CZ_OK: an exception that a function of the program
    raised meanwhile (`thrown`), else the class for the status with the library's sentence."""
    if status != c.CZ_OK:
        if thrown is not None and (first := thrown.take()) is not None:
            raise first
        sentence = lib.cz_last_error().decode(errors="replace")
        raise errors.BY_NUMBER.get(status, errors.Error)(sentence)


def status_of(exception):
    """Give the library an exception's text, for other ranks, and return its status."""
    status = c.ENUMS["cz_status"].get(getattr(exception, "status", ""), c.CZ_ERR_STATE)
    text = str(exception)
    if not isinstance(exception, errors.Error):
        text = f"{type(exception).__name__}: {text}" if text else type(exception).__name__
    return lib.cz_fail_text(status, text.encode(errors="replace"))


class Thrown:
    """Keeps the first exception of functions that the library calls, until its call is back."""

    def __init__(self):
        self._lock = threading.Lock()
        self._first = None

    def keep(self, exception):
        with self._lock:
            if self._first is None:
                self._first = exception

    def take(self):
        with self._lock:
            first, self._first = self._first, None
        return first

    def guard(self, function):
        """`function` as the library can call it: it returns a status, and raises nothing."""
        def guarded(*arguments):
            try:
                function(*arguments)
                return c.CZ_OK
            except BaseException as exception:  # also KeyboardInterrupt: it comes out of the call
                self.keep(exception)
                return status_of(exception)
        return guarded


class Handle:
    """An object of the library. It ends with ``close()``, with a ``with`` block, when nothing
    refers to it any more, or with the interpreter; twice is once."""

    _destroy = ""  # the name of the C function

    def _own(self, handle, keep=None, group=None, needs=()):
        """From now on end `handle` with this object.

        Args:
            keep: what the library calls until then.
            group: that it was made on, which it does not outlive.
            needs: without which nothing can be done with it but to end it.
        """
        self._handle, self._needs = handle, needs
        self._end = weakref.finalize(self, _destroy, getattr(lib, self._destroy), handle.value,
                                     keep)
        if group is not None:
            group._made.add(self._end)

    @property
    def _ptr(self):
        if not self._end.alive:
            raise errors.StateError(f"this {type(self).__name__} is closed")
        for one in self._needs:
            one._ptr
        return self._handle

    def close(self):
        """End it; nothing else may be done with it afterwards. Local."""
        self._end()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Made:
    """What was made on a group: the library wants it to end before the group, in whatever order
    Python lets go of them (an exception's traceback keeps them longer than their `with`)."""

    def __init__(self):
        self._ends, self._room = [], 64

    def add(self, end):
        if len(self._ends) >= self._room:
            self._ends = [one for one in self._ends if one.alive]
            self._room = 2 * len(self._ends) + 64
        self._ends.append(end)

    def end(self):
        while self._ends:
            self._ends.pop()()


def _destroy(function, address, keep):
    if isinstance(keep, Made):
        keep.end()
    function(ctypes.byref(ctypes.c_void_p(address)))


def text(value):
    return value.encode() if isinstance(value, str) else value


def choice(what, enum, prefix, word):
    """The number of `word`, such as "greedy", in an enumeration of the library."""
    members = {name[len(prefix):].lower(): number for name, number in c.ENUMS[enum].items()
               if name.startswith(prefix)}
    if word not in members:
        raise errors.ArgumentError(f"{what} is one of {', '.join(members)}, not {word!r}")
    return members[word]


def hypers(values):
    """A list of named values for the library, from a dictionary; and what it refers to."""
    pairs = []
    for name, value in values.items():
        if name == "betas":
            pairs += [("beta1", value[0]), ("beta2", value[1])]
        else:
            pairs.append((name, value))
    array = (c.cz_hyper * (len(pairs) + 1))()
    for place, (name, value) in enumerate(pairs):
        try:
            array[place].name, array[place].value = name.encode(), float(value)
        except (TypeError, ValueError):
            raise errors.ArgumentError(f"{name} is a number, not {value!r}") from None
    return array
