# SPDX-License-Identifier: MIT
"""Process groups: ranks that call collective operations together.

Every operation matches by its place in the order of calls on its group. Ranks that disagree are
found before data moves: then all of them raise the same error, and the group stays usable.
"""
from __future__ import annotations

import collections.abc
import ctypes
import os
import signal
import threading
import typing
import weakref

from . import _arrays, _limits, _mesh
from . import _declarations as c
from . import errors
from ._library import Handle, Held, Made, call, choice, lib, status_of, text

#: Whatever has DLPack or the buffer protocol; see czero/_arrays.py.
Array = typing.Any

REDUCTIONS = tuple(name[3:].lower() for name in c.ENUMS["cz_reduction"])


class Work(Handle):
    """An operation in flight. Its arrays are the library's until it ended, and kept alive so long,
    even where nothing refers to this object any more."""

    def __init__(self, handle, keep, group):
        self._handle, self._needs, self._kept = Held(handle.value, [group._handle]), (), [keep]
        self._end = weakref.finalize(self, group._made.leave_alone, handle.value, self._kept)
        group._made.add(self._end)

    def wait(self) -> None:
        """Wait for its end, and raise what it ended with. May be called again."""
        status = lib.cz_work_wait(self._ptr)
        if self.done():
            self._kept.clear()
        call(status)

    def done(self) -> bool:
        """Has it ended? Moves it on if that takes no waiting."""
        ended = ctypes.c_bool()
        call(lib.cz_work_test(self._ptr, ctypes.byref(ended)))
        return ended.value


class Group(Handle):
    """One rank's handle on a process group; one thread at a time uses it.

    Made by :func:`launch` (which most programs use), :meth:`self_`, :meth:`world`,
    :meth:`threads`, :meth:`from_mpi4py`, :meth:`split`, :meth:`subset`, and, of a process group of
    PyTorch's, by ``czero.torch.group()``.
    """

    _destroy = "cz_group_destroy"

    def __init__(self, handle, borrowed=False):
        self._made, self._borrowed = Made(), None
        if borrowed:
            self._handle = self._borrowed = ctypes.c_void_p(handle)
        else:
            self._own(handle, keep=self._made)

    @property
    def _ptr(self):
        if self._borrowed is not None:
            if not self._borrowed.value:
                raise errors.StateError("this Group has ended with the launch that it belonged to")
            return self._borrowed
        return super()._ptr

    def close(self) -> None:
        """Leave the group; what was made on it ends, too. Waits for no other rank; ranks that
        still need this one get PeerError."""
        if self._borrowed is None:
            super().close()

    # ---- making groups ----

    @classmethod
    def self_(cls) -> Group:
        """A group of one rank: every collective works, on its own."""
        return cls.world("self")

    @classmethod
    def world(cls, backend: str = "mpi", timeout: float = 0.0) -> Group:
        """The group of all processes of this job, such as those that mpirun started. MPI is
        initialised if nobody has done so, and then finalised at exit.

        Raises:
            UnsupportedError: the plugin of that MPI is not there.
            StateError: MPI is finalised already.
        """
        handle = ctypes.c_void_p()
        options = c.cz_group_options(timeout_seconds=timeout)
        call(lib.cz_group_create_world(ctypes.byref(handle), text(backend), True, options))
        return cls(handle)

    @classmethod
    def threads(cls, size: int, timeout: float = 0.0) -> list[Group]:
        """A list of `size` groups, one for each rank, which are threads of this process."""
        _limits.fit("size", ctypes.c_int, size)
        handles = (ctypes.c_void_p * max(size, 1))()
        options = c.cz_group_options(timeout_seconds=timeout)
        call(lib.cz_group_create_threads(handles, size, options))
        return [cls(ctypes.c_void_p(handle)) for handle in handles]

    @classmethod
    def from_mpi4py(cls, comm: typing.Any, timeout: float = 0.0) -> Group:
        """The ranks of a communicator of mpi4py's, which is duplicated. Collective over it."""
        from mpi4py import MPI  # the MPI that the communicator is of is loaded by now

        flavour = "mpich" if "MPICH" in MPI.Get_library_version() else "openmpi"
        folder = os.environ.get("CZERO_PLUGIN_PATH") or os.path.dirname(lib._name)
        path = os.path.join(folder, f"libczero-mpi-{flavour}.so")
        if not os.path.exists(path):
            raise errors.UnsupportedError(f"there is no {path}: czero was built without {flavour}")
        create = ctypes.CDLL(path).cz_group_create_mpi
        kind = ctypes.c_int if MPI._sizeof(MPI.Comm) == 4 else ctypes.c_void_p
        create.restype = ctypes.c_int
        create.argtypes = [ctypes.POINTER(ctypes.c_void_p), kind, ctypes.c_void_p,
                           ctypes.POINTER(c.cz_group_options)]
        handle = ctypes.c_void_p()
        options = c.cz_group_options(timeout_seconds=timeout)
        call(create(ctypes.byref(handle), kind.from_address(MPI._addressof(comm)), None, options))
        return cls(handle)

    @classmethod
    def connect(cls, rank: int, size: int,
                exchange: collections.abc.Callable[[bytes], list[bytes]],
                timeout: float = 0.0) -> Group:
        """A group of processes that have some other way to exchange a few bytes: they open sockets
        to each other, and those of one machine share memory.

        Args:
            rank, size: of this process; of how many.
            exchange: a function that gives its argument, bytes, to all ranks and returns the list
                of what they gave. It is called four times.
        """
        return cls(_mesh.connect(rank, size, exchange, timeout))

    def split(self, color: int, key: int = 0) -> Group | None:
        """Make sub-groups: ranks with the same `color` become one, ordered by `key`. None on ranks
        with a color below 0. Collective."""
        handle = ctypes.c_void_p()
        call(lib.cz_group_split(self._ptr, color, key, ctypes.byref(handle)))
        return Group(handle) if handle else None

    def subset(self, ranks: collections.abc.Iterable[int]) -> Group | None:
        """Make one sub-group of the listed ranks, in this order. None on all others. Collective."""
        handle, ranks = ctypes.c_void_p(), list(ranks)
        listed = _limits.array(ctypes.c_int, ranks, "ranks")
        call(lib.cz_group_subset(self._ptr, listed, len(ranks), ctypes.byref(handle)))
        return Group(handle) if handle else None

    # ---- what it is ----

    @property
    def rank(self) -> int:
        """0 … size - 1."""
        return lib.cz_group_rank(self._ptr)

    @property
    def size(self) -> int:
        """Ranks in the group."""
        return lib.cz_group_size(self._ptr)

    @property
    def local_rank(self) -> int:
        """This rank's number among those of the group that are on its machine."""
        return self._info().local_rank

    @property
    def local_size(self) -> int:
        """How many ranks of the group are on this rank's machine."""
        return self._info().local_size

    def local_cores(self) -> int:
        """How many threads this rank may run so that all ranks of its machine together have a core
        for each. Collective; of the group of all ranks. A group of :meth:`connect` knows who is on
        this machine only where all of them are; others count themselves alone."""
        cores = ctypes.c_int()
        call(lib.cz_group_local_cores(self._ptr, ctypes.byref(cores)))
        return cores.value

    def _info(self) -> c.cz_group_info:
        info = c.cz_group_info()
        call(lib.cz_group_get_info(self._ptr, info))
        return info

    @property
    def info(self) -> dict:
        """A dictionary: backend, ordered_sums, sent_bytes, header_bytes, messages, native."""
        info = self._info()
        return {"backend": info.backend.decode(), "ordered_sums": bool(info.ordered_sums),
                "sent_bytes": info.sent_bytes, "header_bytes": info.header_bytes,
                "messages": info.messages, "native": info.native}

    def progress(self) -> None:
        """Move operations of this rank on, without waiting."""
        call(lib.cz_progress(self._ptr))

    def __repr__(self):
        if self._borrowed is None and not self._end.alive:
            return "<czero.Group, closed>"
        return f"<czero.Group, rank {self.rank} of {self.size} on {self.info['backend']}>"

    # ---- collective operations ----

    def _start(self, function, prepare, label, wait):
        """`prepare` returns what the function is given, and arrays to keep. Where it refuses its
        arguments C is given a count that it refuses, too, so that all ranks learn of it."""
        refused = None
        options = c.cz_operation_options()
        try:
            options.label = text(label)
            arguments, views = prepare()
            function.fit(None, *arguments, None)
        except errors.ArgumentError as error:
            refused, views = error, None
            arguments = [{ctypes.c_void_p: None, ctypes.c_int64: -1}.get(kind, 0)
                         for kind in function.argtypes[1:-1]]
        self._made.prune()
        work = ctypes.c_void_p()
        if not wait:
            options.work = ctypes.pointer(work)
        status = function(self._ptr, *arguments, options)
        made = Work(work, views, self) if work else None
        if refused is not None:
            raise refused
        call(status)
        return made

    def barrier(self, *, label: str | None = None, wait: bool = True) -> Work | None:
        """Returns when every rank has called it."""
        return self._start(lib.cz_barrier, lambda: ((), ()), label, wait)

    def broadcast(self, array: Array, root: int = 0, *, label: str | None = None,
                  wait: bool = True) -> Work | None:
        """Every rank's `array` becomes that of rank `root`. With `wait` false, here and below, it
        is only started, and a :class:`Work` is returned."""
        def prepare():
            one = _arrays.view(array, "array")
            return (one.address, one.count, one.number, root), one
        return self._start(lib.cz_broadcast, prepare, label, wait)

    def all_reduce(self, array: Array, op: str = "sum", *, label: str | None = None,
                   wait: bool = True) -> Work | None:
        """Every rank's `array` becomes the reduction of all: the same bits on every rank, and on
        every backend. `op` is one of ``czero.group.REDUCTIONS``."""
        def prepare():
            one = _arrays.view(array, "array")
            return (one.address, one.count, one.number, _op(op)), one
        return self._start(lib.cz_all_reduce, prepare, label, wait)

    def reduce(self, array: Array, output: Array | None = None, op: str = "sum", root: int = 0, *,
               label: str | None = None, wait: bool = True) -> Work | None:
        """Rank `root` gets the reduction of all ranks' `array` in `output`, of the same shape."""
        def prepare():
            one, out = self._pair(array, output, output is not None, 1, 1)
            return (one.address, out.address, one.count, one.number, _op(op), root), (one, out)
        return self._start(lib.cz_reduce, prepare, label, wait)

    def reduce_scatter(self, array: Array, output: Array, op: str = "sum", *,
                       label: str | None = None, wait: bool = True) -> Work | None:
        """`output` (n elements) becomes block `rank` of the reduction of `array` (size times n)."""
        def prepare():
            one, out = self._pair(array, output, True, self.size, 1)
            return (one.address, out.address, out.count, one.number, _op(op)), (one, out)
        return self._start(lib.cz_reduce_scatter, prepare, label, wait)

    def all_gather(self, array: Array, output: Array, *, label: str | None = None,
                   wait: bool = True) -> Work | None:
        """Block r of `output` (size times n elements) becomes rank r's `array` (n)."""
        def prepare():
            one, out = self._pair(array, output, True, 1, self.size)
            return (one.address, out.address, one.count, one.number), (one, out)
        return self._start(lib.cz_all_gather, prepare, label, wait)

    def gather(self, array: Array, output: Array | None = None, root: int = 0, *,
               label: str | None = None, wait: bool = True) -> Work | None:
        """The same on rank `root` alone; others need no `output`."""
        def prepare():
            one, out = self._pair(array, output, output is not None, 1, self.size)
            return (one.address, out.address, one.count, one.number, root), (one, out)
        return self._start(lib.cz_gather, prepare, label, wait)

    def scatter(self, array: Array | None, output: Array, root: int = 0, *,
                label: str | None = None, wait: bool = True) -> Work | None:
        """`output` (n elements) becomes block `rank` of the root's `array` (size times n); others
        need no `array`."""
        def prepare():
            out = _arrays.view(output, "output")
            one = _arrays.view(array, "array", False) if array is not None else _nothing(out)
            if array is not None:
                _alike(one, out, self.size, 1)
            return (one.address, out.address, out.count, out.number, root), (one, out)
        return self._start(lib.cz_scatter, prepare, label, wait)

    def all_to_all(self, array: Array, output: Array, *, label: str | None = None,
                   wait: bool = True) -> Work | None:
        """Block r of `output` becomes block `rank` of rank r's `array`; both have size times n
        elements."""
        def prepare():
            one, out = self._pair(array, output, True, 1, 1)
            if one.count % self.size:
                raise errors.ArgumentError(f"array has {one.count} elements, which {self.size} "
                                           "ranks do not divide")
            count = one.count // self.size
            return (one.address, out.address, count, one.number), (one, out)
        return self._start(lib.cz_all_to_all, prepare, label, wait)

    def broadcast_bytes(self, data: bytes | bytearray | memoryview = b"", root: int = 0) -> bytes:
        """Bytes of a length that only the root knows; returns them on every rank."""
        data = memoryview(data).tobytes()  # a TypeError for a text, which has no bytes of its own
        out, length = ctypes.c_void_p(), ctypes.c_size_t()
        call(lib.cz_broadcast_object(self._ptr, data, len(data), root, ctypes.byref(out),
                                     ctypes.byref(length)))
        try:
            return ctypes.string_at(out, length.value) if length.value else b""
        finally:
            lib.cz_object_free(out)

    @staticmethod
    def _pair(array, output, both, left, right):
        one = _arrays.view(array, "array", written=False)
        out = _arrays.view(output, "output") if both else _nothing(one)
        if both:
            _alike(one, out, left, right)
        return one, out


def _nothing(other):
    return _arrays.View(None, other.dtype, (0,), None)


def _alike(one, out, left, right):
    if one.dtype != out.dtype or one.count * right != out.count * left:
        raise errors.ArgumentError(
            f"array has {one.count} {one.dtype} and output {out.count} {out.dtype}; wanted are the "
            f"same type, and {one.count * right / left:g} elements of output")


def _op(word):
    return choice("op", "cz_reduction", "CZ_", word)


_LAUNCHERS = ("OMPI_COMM_WORLD_SIZE", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID")


def launch(function: collections.abc.Callable, ranks: int = 0, *, timeout: float = 0.0,
           arguments: tuple = ()) -> list:
    """Run ``function(group, *arguments)`` once per rank, each on a thread of its own, and return
    the list of what they return. In a process that mpirun started: once, as this process's rank.

    The ranks run Python one at a time, and the library, NumPy and whatever else lets go of the
    interpreter's lock at the same time.

    Args:
        function: the program of a rank. Its group ends with it.
        ranks: 0: CZERO_RANKS in the environment, else 1.
        timeout: seconds after which an operation that not all ranks have come to fails; 0:
            CZERO_TIMEOUT, else 600.

    Raises:
        What a rank raised; of several the first that did not only hear of another's failure. The
        other ranks get PeerError where they wait for it.
    """
    results, raised, lock, interrupted = {}, [], threading.Lock(), threading.Event()
    threads: set = set()  # of ranks that run now
    held = []  # arrays of operations that nobody has waited for, until their groups have ended

    def rank_main(handle):
        group = Group(handle, borrowed=True)
        held.append(group._made)
        try:
            with lock:
                if interrupted.is_set():
                    raise KeyboardInterrupt
                threads.add(threading.get_ident())
            results[group.rank] = function(group, *arguments)
        finally:
            with lock:
                threads.discard(threading.get_ident())
            group._made.end()
            group._borrowed.value = None

    def main(handle, _):
        try:
            rank_main(handle)
            return c.CZ_OK
        except BaseException as exception:
            with lock:
                raised.append(exception)
            return status_of(exception)

    options = c.cz_launch_options(ranks=ranks, timeout_seconds=timeout)
    entry = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(main)
    outcome, done = [], threading.Event()

    def run():
        try:
            call(lib.cz_launch(entry, None, options))
        except errors.Error as error:
            outcome.append(error)
        finally:
            done.set()

    if (threading.current_thread() is not threading.main_thread()
            or any(name in os.environ for name in _LAUNCHERS)
            or signal.getsignal(signal.SIGINT) not in (signal.default_int_handler,
                                                       _mesh.on_interrupt)):
        run()
    else:  # so that Ctrl-C is heard here, and passed on to the ranks
        waiter = threading.Thread(target=run, name="czero.launch")
        waiter.start()
        while not done.is_set():  # join() takes an interrupted thread for one that has ended
            try:
                done.wait()
            except KeyboardInterrupt:
                with lock:
                    interrupted.set()  # for those that have not begun
                    for ident in threads:
                        ctypes.pythonapi.PyThreadState_SetAsyncExc(
                            ctypes.c_ulong(ident), ctypes.py_object(KeyboardInterrupt))
        waiter.join()
    if outcome:
        heard = (errors.PeerError, errors.WaitTimeoutError)
        first = [one for one in raised if not isinstance(one, heard)] or raised
        raise first[0] if first else outcome[0]
    return [results[rank] for rank in sorted(results)]
