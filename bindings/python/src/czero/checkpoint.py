# SPDX-License-Identifier: MIT
"""Checkpoints: a folder to which each rank writes what it owns, and any number of ranks reads."""
from __future__ import annotations

import ctypes
import os
import typing

from . import _arrays
from . import _declarations as c
from . import errors, state
from ._library import Handle, Thrown, call, lib, text

if typing.TYPE_CHECKING:
    from .group import Group
    from .model import Model
    from .optim import Optim, Zero


class Loaded(typing.NamedTuple):
    """What a load found beside model and optimizer."""

    #: As it was given to the save; None: the file says nothing of it.
    step: typing.Optional[int]
    #: The number of the generation; None for files of another form.
    generation: typing.Optional[int]
    #: Of the job that saved it; 0 for files of another form.
    world_size: int
    #: What was saved for all ranks.
    common: dict
    #: What the rank with this number had saved; None: there were fewer ranks.
    own: typing.Optional[dict]


class Checkpoint(Handle):
    """One rank's part of the checkpoints in a folder. Collective, as are its saves and loads.

    Args:
        folder: made by the first save. A save is a *generation* in it, which counts once every
            rank's part is on the medium; a job that is killed leaves the ones before.
        zero, optim: the sharded optimizer, or the unsharded one; or neither.
        model: where there is no optimizer.
        keep: generations that a save leaves.
    """

    _destroy = "cz_checkpoint_destroy"

    def __init__(self, group: Group, folder: str | os.PathLike, *, zero: Zero | None = None,
                 optim: Optim | None = None, model: Model | None = None, keep: int = 2):
        needs = (group, *[one for one in (zero, optim, model) if one is not None])
        if model is None and optim is not None:
            model = optim.model
        options = c.cz_checkpoint_options(
            model=None if model is None else model._ptr, zero=zero and zero._ptr,
            optim=optim and optim._ptr, keep=keep)
        handle = ctypes.c_void_p()
        call(lib.cz_checkpoint_create(ctypes.byref(handle), group._ptr, os.fsencode(folder),
                                      options))
        self._own(handle, group=group, needs=needs)

    def save(self, step: int, *, common: dict | None = None, own: dict | None = None,
             wait: bool = True) -> None:
        """Save parameters, buffers, the optimizer's state and two dictionaries.

        Args:
            step: of the program, 0 or more; alike on all ranks.
            common: what is the same on all ranks: schedulers' states, the position in the data.
            own: what is this rank's alone, such as random numbers.
            wait: False: return as soon as there is a copy; see :meth:`wait`.

        Raises:
            MismatchError: ranks differ; in what. FileError: rank and path. Nothing was published
            then, and nothing removed.
        """
        save = lib.cz_checkpoint_save if wait else lib.cz_checkpoint_save_async
        with state.Given(common) as shared, state.Given(own) as mine:
            call(save(self._ptr, c.cz_save_options(step=step, common=shared, own=mine)))

    def wait(self) -> None:
        """Wait until the last save that was not waited for is complete on all ranks."""
        call(lib.cz_checkpoint_wait(self._ptr))

    def load(self, step: int | None = None, *, missing_ok: bool = False, fall_back: bool = False,
             permissive: bool = False, convert: bool = False) -> Loaded | None:
        """Load the newest complete generation, or that of a step: of any number of ranks and any
        partition. Everything is verified before anything changes.

        Args:
            missing_ok: return None where there is none.
            fall_back: if a generation is damaged, take the newest before it that is not.
            permissive: parameters, buffers and state may be missing on either side.
            convert: values of another floating type are rounded to the type here.

        Returns:
            :class:`Loaded`, or None.

        Raises:
            StateError: there is no complete generation. FormatError: a file is damaged.
            ArgumentError: it is of another model or optimizer: all differences.
        """
        options = c.cz_load_options(step=c.CZ_NEWEST if step is None else step,
                                    missing_ok=missing_ok, fall_back=fall_back,
                                    permissive=permissive, convert=convert)
        result = c.cz_load_result()
        call(lib.cz_checkpoint_load(self._ptr, options, result))
        return None if result.step < 0 else _loaded(result)

    def export(self, path: str | os.PathLike, step: int = 0, *, common: dict | None = None,
               max_file_bytes: int = 0, parameters_only: bool = False) -> None:
        """Write everything into one file: for ``torch.load()`` if `path` ends in .pt, .pth or .bin,
        else safetensors; with `max_file_bytes` into a folder of files."""
        with state.Given(common) as shared:
            options = c.cz_export_options(step=step, common=shared, max_file_bytes=max_file_bytes,
                                          parameters_only=parameters_only)
            call(lib.cz_checkpoint_export(self._ptr, os.fsencode(path), options))

    def load_file(self, path: str | os.PathLike, *, permissive: bool = False,
                  convert: bool = False) -> Loaded:
        """Load what was exported, or another program's safetensors or PyTorch files, of which
        nothing is executed."""
        options = c.cz_load_options(permissive=permissive, convert=convert)
        result = c.cz_load_result()
        call(lib.cz_checkpoint_import(self._ptr, os.fsencode(path), options, result))
        return _loaded(result)

    @property
    def notes(self) -> str:
        """What there was to say about the last load or export, a line each."""
        return lib.cz_checkpoint_notes(self._ptr).decode()


def _loaded(result):
    def taken(handle):
        return state.take(ctypes.c_void_p(handle)) if handle else None
    common, own = taken(result.common), taken(result.own)
    return Loaded(result.step if result.step >= 0 else None,
                  result.generation if result.generation >= 0 else None, result.world_size,
                  common or {}, own)


class Archive(Handle):
    """A checkpoint as what it is on a disk: arrays with names, read without ranks::

        with czero.Archive("checkpoints") as archive:
            weights = archive["layers.0.weight"]
            moments = archive.read("layers.0.weight", slot="exp_avg")

    Args:
        path: a folder of generations, one of these, a safetensors file or a folder of them, or a
            file of PyTorch's, of which nothing is executed.
        step: of a folder of generations; None: the newest complete one.

    Raises:
        StateError: no generation is complete. FormatError: what is damaged, and where.
        ArgumentError: nothing of that kind is there.
    """

    _destroy = "cz_archive_destroy"

    def __init__(self, path: str | os.PathLike, step: int | None = None):
        handle = ctypes.c_void_p()
        call(lib.cz_archive_open(ctypes.byref(handle), os.fsencode(path),
                                 c.CZ_NEWEST if step is None else step))
        self._own(handle)

    @property
    def info(self) -> dict:
        """A dictionary: kind, path, notes, step, generation, world_size, parts, library, id, and
        `optimizer`: the optimizer's state dictionary with types in place of arrays."""
        info = self._info()
        found = {name: (getattr(info, name) or b"").decode() or None
                 for name in ("kind", "path", "notes", "id", "library")}
        for name in ("step", "generation", "world_size", "parts"):
            value = getattr(info, name)
            found[name] = None if value < 0 else value
        found["optimizer"] = state._read(info.optimizer) if info.optimizer else None
        return found

    def _info(self):
        info = c.cz_archive_info()
        call(lib.cz_archive_get_info(self._ptr, info))
        return info

    def _tensor(self, place):
        found = c.cz_archive_tensor()
        call(lib.cz_archive_get_tensor(self._ptr, place, found))
        return found

    @property
    def parameters(self) -> list[str]:
        """The names of all parameters."""
        return [self._tensor(place).name.decode() for place in range(self._info().param_count)]

    @property
    def buffers(self) -> list[str]:
        """The names of all buffers."""
        info = self._info()
        return [self._tensor(info.param_count + place).name.decode()
                for place in range(info.buffer_count)]

    def __len__(self) -> int:
        info = self._info()
        return info.param_count + info.buffer_count

    def __iter__(self):
        return iter(self.parameters + self.buffers)

    def __contains__(self, name):
        return (isinstance(name, str) and "\0" not in name
                and lib.cz_archive_find(self._ptr, name.encode()) >= 0)

    def __getitem__(self, name: str) -> typing.Any:
        return self.read(name)

    def shape(self, name: str) -> tuple[int, ...]:
        found = self._tensor(self._place(name))
        return tuple(found.shape[:found.dimensions])

    def dtype(self, name: str) -> str:
        """"f32", "bf16", "f8_e4m3", …"""
        return self._tensor(self._place(name)).type.decode()

    def slots(self, name: str) -> list[str]:
        """The state that a parameter has, such as ["exp_avg", "exp_avg_sq"]."""
        place = self._place(name)
        found: list[str] = []
        while (slot := lib.cz_archive_slot(self._ptr, place, len(found), None)) is not None:
            found.append(slot.decode())
        return found

    def read(self, name: str, slot: str | None = None, begin: int = 0,
             end: int | None = None) -> typing.Any:
        """A parameter or buffer, or one of its slots, as a new array in the type of the file. With
        `begin` and `end`, elements in row-major order, flat.

        Raises:
            KeyError: no such name. UnsupportedError: of a type that is no array's here.
        """
        place = self._place(name)
        found = self._tensor(place)
        dtype = ctypes.c_int(found.dtype)
        if slot in (slots := self.slots(name)):  # of a type of its own
            lib.cz_archive_slot(self._ptr, place, slots.index(slot), ctypes.byref(dtype))
        if dtype.value not in _arrays.BY_NUMBER:
            raise errors.UnsupportedError(f"'{name}' is of type {found.type.decode()}, which is "
                                          "carried and not read")
        whole = begin == 0 and end is None
        end = found.count if end is None else end
        shape = found.shape[:found.dimensions] if whole else (max(end - begin, 0),)
        array, address = _arrays.empty(_arrays.BY_NUMBER[dtype.value], tuple(shape))
        call(lib.cz_archive_read(self._ptr, place, text(slot), begin, end, address))
        return array

    def read_dict(self, rank: int | None = None) -> dict:
        """What the program saved beside, for all ranks, or for one alone."""
        handle = ctypes.c_void_p()
        call(lib.cz_archive_read_dict(self._ptr, c.CZ_ALL_RANKS if rank is None else rank,
                                      ctypes.byref(handle)))
        return state.take(handle)

    def verify(self, problem: typing.Callable[[str], None] | None = None) -> dict:
        """Verify every checksum, every header, and that every element is there exactly once.

        Args:
            problem: called with a sentence for each thing that is wrong; without it the first one
                ends the verification.

        Returns:
            A dictionary: problems, tensors, checksums, bytes.

        Raises:
            FormatError: something is wrong.
        """
        thrown, result, options = Thrown(), c.cz_verify_result(), c.cz_verify_options()
        if problem is not None:
            options.problem = c.cz_archive_problem(
                thrown.guard(lambda sentence, _: problem(sentence.decode())))
        call(lib.cz_archive_verify(self._ptr, options, result), thrown)
        return {"problems": result.problems, "tensors": result.tensors,
                "checksums": result.checksums, "bytes": result.bytes}

    def fingerprint(self) -> str:
        """As ``Zero.fingerprint()`` of the same parameters and state."""
        number = (ctypes.c_uint64 * 2)()
        call(lib.cz_archive_fingerprint(self._ptr, number))
        return f"{number[0]:016x}{number[1]:016x}"

    def _place(self, name):
        if name not in self:
            raise KeyError(f"there is no tensor '{name}' in {self._info().path.decode()}")
        return lib.cz_archive_find(self._ptr, text(name))
