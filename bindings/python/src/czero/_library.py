# SPDX-License-Identifier: MIT
"""The shared library: found, loaded, and called. While a call runs, other threads of Python do."""
import atexit
import collections
import ctypes
import os
import pathlib
import threading
import weakref

from . import _declarations as c
from . import errors
from ._limits import fit, limited

FOLDER = pathlib.Path(__file__).resolve().parent


class Held(ctypes.c_void_p):
    """The address of an object of the library, which does not end while a call uses it, or uses
    what needs it: not in a function that the call calls, and not in another thread."""

    def __init__(self, address, needs=()):
        super().__init__(address)
        self.all = [self, *(one for need in needs for one in getattr(need, "all", ()))]
        self.users, self.ended, self.end = 0, False, None


_using = threading.RLock()  # since Python may collect garbage, and end things, while it is held


def _enter(held):
    with _using:
        if any(one.ended for one in held):
            raise errors.StateError("another thread has just closed this, or what it needs")
        for one in held:
            one.users += 1


def _leave(held):
    with _using:
        for one in reversed(held):  # so that what needs others ends first
            one.users -= 1
            if one.users == 0 and one.end is not None:
                _put_off(*one.end)
                one.end = None


class use:
    """While this object lives `handle` does not end: what it ends with waits until then."""

    def __init__(self, handle):
        handle._ptr  # is open
        self._held = handle._handle.all
        _enter(self._held)

    def __del__(self):
        _leave(self._held)


class _Function:
    """A function of the library, which refuses what ctypes would change on the way."""

    def __init__(self, function, name, arguments):
        self._function, self.argtypes = function, arguments
        self._limited = [(place, kind, f"argument {place + 1} of {name}()")
                         for place, kind in enumerate(arguments) if limited(kind)]

    def fit(self, *arguments):
        """Raise ArgumentError if the call would, and do nothing else."""
        for place, kind, what in self._limited:
            fit(what, kind, arguments[place])

    def __call__(self, *arguments):
        self.fit(*arguments)
        held = [one for given in arguments if type(given) is Held for one in given.all]
        if not held:
            return self._function(*arguments)
        _enter(held)
        try:
            return self._function(*arguments)
        finally:
            _leave(held)


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
        if name != "cz_fail_text":  # rather half of a sentence than an error about it
            setattr(library, name, _Function(function, name, arguments))
    return library


lib = _load()


class _Here(threading.local):
    """Of one thread: how many of Python's functions that the library calls it is in, and an
    exception that came in one and could not go out there."""

    depth = 0
    kept = None


here = _Here()


def called(function):
    """`function` as the library may call it. What is to end meanwhile, since Python collects
    garbage wherever it likes, ends later: the library could be waiting for this very function."""
    def entered(*arguments):
        before = here.depth
        try:
            here.depth = before + 1
            return function(*arguments)
        finally:
            here.depth = before
    return entered


def call(status, thrown=None):
    """Raise what a status means, if it is not CZ_OK: an exception that a function of the program
    raised meanwhile (`thrown`), else the class for the status with the library's sentence. Before
    all that, what was kept for the end of this call, such as Ctrl-C."""
    sentence = lib.cz_last_error() if status != c.CZ_OK else None  # before other calls change it
    if _later:
        _end_the_rest()
    if here.kept is not None and here.depth == 0:
        kept, here.kept = here.kept, None
        raise kept
    if status != c.CZ_OK:
        if thrown is not None and (first := thrown.take()) is not None:
            raise first
        raise errors.BY_NUMBER.get(status, errors.Error)(sentence.decode(errors="replace"))


def status_of(exception):
    """Give the library an exception's text, for other ranks, and return its status. Raises nothing,
    whatever the exception's own attributes and text do."""
    try:
        status = c.ENUMS["cz_status"].get(getattr(exception, "status", ""), c.CZ_ERR_STATE)
        text = str(exception)
    except Exception:
        status, text = c.CZ_ERR_STATE, ""
    if not isinstance(exception, errors.Error):
        text = f"{type(exception).__name__}: {text}" if text else type(exception).__name__
    if status == c.CZ_OK:
        status = c.CZ_ERR_STATE
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
        @called
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
    refers to it any more, or with the interpreter; twice is once. While a call uses it, its end is
    put off until that call is back."""

    _destroy = ""  # the name of the C function

    def _own(self, handle, keep=None, group=None, needs=()):
        """From now on end `handle` with this object.

        Args:
            keep: what the library calls until then.
            group: that it was made on, which it does not outlive.
            needs: without which nothing can be done with it but to end it.
        """
        self._needs = needs
        below = needs if group is None else (*needs, group)
        self._handle = Held(handle.value, [one._handle for one in below])
        self._end = weakref.finalize(self, _destroy, getattr(lib, self._destroy), self._handle,
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
        call(c.CZ_OK)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


class Made:
    """What was made on a group: the library wants it to end before the group, in whatever order
    Python lets go of them (an exception's traceback keeps them longer than their `with`)."""

    def __init__(self):
        self._ends, self._room = [], 64
        self._flying = collections.deque()  # operations that nobody waits for, and their arrays
        self._arrays = []

    def add(self, end):
        if len(self._ends) >= self._room:
            self._ends = [one for one in self._ends if one.alive]
            self._room = 2 * len(self._ends) + 64
        self._ends.append(end)

    def leave_alone(self, address, kept):
        """An operation's handle is no longer wanted; its arrays (a list) still are, till it ends
        or the group does."""
        if kept or here.depth:
            self._flying.append((address, kept))
        else:
            _let_go(address)

    def prune(self):
        """Let go of those operations that have ended, in the order of their calls."""
        while self._flying and not here.depth:
            address, kept = self._flying[0]
            ended = ctypes.c_bool()
            lib.cz_work_test(address, ctypes.byref(ended))
            if kept and not ended:
                return
            self._flying.popleft()
            _let_go(address)

    def end(self):
        while self._ends:
            self._ends.pop()()
        while self._flying:  # their arrays go with this object, after the group
            address, kept = self._flying.popleft()
            self._arrays.append(kept)
            _let_go(address)


def _let_go(work):
    lib.cz_work_destroy(ctypes.byref(ctypes.c_void_p(work)))


_later: collections.deque = collections.deque()  # what was to end inside a call


def _destroy(function, held, keep):
    with _using:
        held.ended = True
        if held.users:
            held.end = (function, held, keep)
            return
    if here.depth == 0:
        _end_the_rest()
        _end(function, held, keep)
    else:
        _put_off(function, held, keep)


def _put_off(function, held, keep):
    if isinstance(keep, Made):  # after what was made on it
        _later.append((function, held, keep))
    else:
        _later.appendleft((function, held, keep))


def _end(function, held, keep):
    if isinstance(keep, Made):
        keep.end()
    function(ctypes.byref(ctypes.c_void_p(held.value)))


def _end_the_rest():
    while here.depth == 0:
        try:
            one = _later.popleft()
        except IndexError:
            return
        _end(*one)


atexit.register(_end_the_rest)


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
            try:
                beta1, beta2 = value
            except (TypeError, ValueError):
                raise errors.ArgumentError(f"betas are two numbers, not {value!r}") from None
            pairs += [("beta1", beta1), ("beta2", beta2)]
        else:
            pairs.append((name, value))
    array = (c.cz_hyper * (len(pairs) + 1))()
    for place, (name, value) in enumerate(pairs):
        try:
            array[place].value = float(value)
        except (TypeError, ValueError):
            raise errors.ArgumentError(f"{name} is a number, not {value!r}") from None
        array[place].name = name.encode()
    return array
