# SPDX-License-Identifier: MIT
"""Errors: a status and a sentence, as exceptions.

Each class is also the builtin exception that fits, so ``except ValueError`` catches a bad argument.
"""
from . import _declarations as c


class Error(Exception):
    """The library said no. The text says what was seen and what was wanted, and on which rank.

    Attributes:
        status: the name of the status as it is written in C, such as ``"CZ_ERR_PEER"``.
    """

    status = "CZ_ERR_INTERNAL"


class ArgumentError(Error, ValueError):
    """An argument is outside its range. Nothing was changed."""

    status = "CZ_ERR_ARGUMENT"


class OutOfMemoryError(Error, MemoryError):
    """Memory could not be had. Nothing was changed."""

    status = "CZ_ERR_MEMORY"


class StateError(Error, RuntimeError):
    """The call is not allowed now. Nothing was changed."""

    status = "CZ_ERR_STATE"


class UnsupportedError(Error, NotImplementedError):
    """This build or backend cannot do it. Nothing was changed."""

    status = "CZ_ERR_UNSUPPORTED"


class MismatchError(Error, ValueError):
    """Ranks gave different arguments to one collective call: all of them get this, no data was
    moved, and the group stays usable."""

    status = "CZ_ERR_MISMATCH"


class PeerError(Error, ConnectionError):
    """Another rank failed or left. The group is broken: close it."""

    status = "CZ_ERR_PEER"


class WaitTimeoutError(Error, TimeoutError):
    """Ranks did not arrive in time. The group is broken: close it."""

    status = "CZ_ERR_TIMEOUT"


class FileError(Error, OSError):
    """A file or the operating system refused."""

    status = "CZ_ERR_IO"


class InternalError(Error, RuntimeError):
    """The library contradicts itself: please report it."""

    status = "CZ_ERR_INTERNAL"


class FormatError(Error, ValueError):
    """A file is damaged, or not of the kind that was expected."""

    status = "CZ_ERR_FORMAT"


BY_NUMBER = {c.ENUMS["cz_status"][kind.status]: kind for kind in (
    ArgumentError, OutOfMemoryError, StateError, UnsupportedError, MismatchError, PeerError,
    WaitTimeoutError, FileError, InternalError, FormatError)}
