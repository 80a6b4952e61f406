# SPDX-License-Identifier: MIT
"""Arrays of the program as the library sees them: an address, a type and a shape.

Taken without a copy: whatever has ``__dlpack__`` (NumPy, PyTorch, …) or the buffer protocol
(``array.array``, ``bytearray``, ``memoryview``), on the CPU, row-major, without gaps. What is
read-only, such as the arrays of JAX, is refused where the library writes.
"""
import ctypes
import math

from . import _declarations as c
from . import errors

# Name, number, and the format of the buffer protocol ("" if it has none).
NAMES = {"f32": (c.CZ_F32, "f"), "f64": (c.CZ_F64, "d"), "f16": (c.CZ_F16, "e"),
         "bf16": (c.CZ_BF16, ""), "i32": (c.CZ_I32, "i"), "i64": (c.CZ_I64, "q"),
         "u8": (c.CZ_U8, "B")}
BY_NUMBER = {number: name for name, (number, _) in NAMES.items()}
SIZES = {"f32": 4, "f64": 8, "f16": 2, "bf16": 2, "i32": 4, "i64": 8, "u8": 1}
_FORMATS = {"f": "f32", "d": "f64", "e": "f16", "i": "i32", "B": "u8", "q": "i64", "c": "u8",
            "l": "i64" if ctypes.sizeof(ctypes.c_long) == 8 else "i32"}
_DLPACK = {(2, 32): "f32", (2, 64): "f64", (2, 16): "f16", (4, 16): "bf16", (0, 32): "i32",
           (0, 64): "i64", (1, 8): "u8"}


class _DLTensor(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32),
                ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class _DLVersioned(ctypes.Structure):
    """From version 1 of DLPack on."""

    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32),
                ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
                ("flags", ctypes.c_uint64), ("tensor", _DLTensor)]


_READ_ONLY = 1  # a flag

_capsule_name = ctypes.pythonapi.PyCapsule_GetName
_capsule_name.restype = ctypes.c_char_p
_capsule_name.argtypes = [ctypes.py_object]
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


class View:
    """An array of the program: `address`, `dtype` ("f32", …), `shape`, `count`. It keeps the
    memory alive, but not from being moved by whoever owns it."""

    def __init__(self, address, dtype, shape, keep):
        self.address, self.dtype, self.shape, self.keep = address, dtype, tuple(shape), keep
        self.count = math.prod(self.shape)

    @property
    def number(self):
        return NAMES[self.dtype][0]

    def tensor(self):
        """As the C library has it."""
        given = c.cz_tensor(data=self.address, dtype=self.number, dimensions=len(self.shape))
        given.shape[:len(self.shape)] = self.shape
        return given


def view(array, what, written=True):
    """See an array. `what` names it in sentences; `written`: the library writes to it.

    Raises:
        ArgumentError: it is no array, has gaps or another order than row-major, is read-only and to
            be written, or has another type or device than the library takes.
    """
    if isinstance(array, View):
        return array
    if hasattr(array, "detach"):  # PyTorch hands out no tensor that is part of a graph
        array = array.detach()
    if hasattr(array, "__dlpack__") and not _is_read_only(array):
        found = _from_dlpack(array, what, written)
    else:
        found = _from_buffer(array, what, written)
    if len(found.shape) > c.CZ_MAX_DIMENSIONS:
        raise errors.ArgumentError(f"{what} has {len(found.shape)} dimensions; there may be "
                                   f"{c.CZ_MAX_DIMENSIONS}")
    return found


def _is_read_only(array):
    """Does it have the buffer protocol, and says so there? NumPy's DLPack cannot in all versions.
    """
    try:
        return memoryview(array).readonly
    except (TypeError, ValueError, BufferError):
        return False


def _from_dlpack(array, what, written):
    if written and type(array).__module__.split(".")[0] in ("jax", "jaxlib"):  # which do not say so
        raise errors.ArgumentError(f"{what} is JAX's, whose arrays are read-only")
    try:
        try:
            capsule = array.__dlpack__(max_version=(1, 0))
        except TypeError:  # it is older than that, and hands out nothing that is read-only
            capsule = array.__dlpack__()
    except Exception as error:  # BufferError, TypeError, RuntimeError: each library has its own
        raise errors.ArgumentError(f"{what} cannot be seen from outside: {error}") from None
    if _capsule_name(capsule) == b"dltensor_versioned":
        versioned = _DLVersioned.from_address(_capsule_pointer(capsule, b"dltensor_versioned"))
        if versioned.major > 1:
            raise errors.ArgumentError(f"{what} has version {versioned.major} of DLPack; 1 is the "
                                       "last one known here")
        if written and versioned.flags & _READ_ONLY:
            raise errors.ArgumentError(f"{what} is read-only")
        seen = versioned.tensor
    else:
        seen = _DLTensor.from_address(_capsule_pointer(capsule, b"dltensor"))
    if seen.device_type not in (1, 3):  # the CPU, and its memory that a GPU sees too
        raise errors.ArgumentError(f"{what} is on a device of DLPack's type {seen.device_type}; "
                                   "it has to be on the CPU")
    dtype = _DLPACK.get((seen.code, seen.bits)) if seen.lanes == 1 else None
    if dtype is None:
        kind = getattr(array, "dtype", f"{seen.bits}-bit")
        raise errors.ArgumentError(f"{what} has elements of type {kind}; there are "
                                   f"{', '.join(NAMES)}")
    shape = seen.shape[:seen.ndim] if seen.ndim else []
    if seen.strides and seen.ndim:
        _no_gaps(shape, seen.strides[:seen.ndim], what)
    # The capsule is not taken over, only held: when it goes, so does the array's memory.
    return View((seen.data or 0) + seen.byte_offset, dtype, shape, (capsule, array))


def _from_buffer(array, what, written):
    try:
        seen = memoryview(array)
    except TypeError:
        raise errors.ArgumentError(f"{what} is a {type(array).__name__}, which is no array: it has "
                                   "neither DLPack nor the buffer protocol") from None
    dtype = _FORMATS.get(seen.format.lstrip("@=<"))
    if dtype is None or SIZES[dtype] != seen.itemsize:
        raise errors.ArgumentError(f"{what} has elements of format '{seen.format}'; there are "
                                   f"{', '.join(NAMES)}")
    if seen.readonly and written:
        raise errors.ArgumentError(f"{what} is read-only")
    _no_gaps(seen.shape, [stride // seen.itemsize for stride in seen.strides], what)
    if seen.nbytes == 0:
        return View(0, dtype, seen.shape, array)
    if seen.readonly:
        return View(_address(seen), dtype, seen.shape, (seen, array))
    first = ctypes.c_char.from_buffer(seen.cast("B"))
    return View(ctypes.addressof(first), dtype, seen.shape, (first, array))


class _Buffer(ctypes.Structure):
    """Py_buffer."""

    _fields_ = [("buf", ctypes.c_void_p), ("obj", ctypes.c_void_p), ("len", ctypes.c_ssize_t),
                ("itemsize", ctypes.c_ssize_t), ("readonly", ctypes.c_int),
                ("ndim", ctypes.c_int), ("format", ctypes.c_char_p), ("shape", ctypes.c_void_p),
                ("strides", ctypes.c_void_p), ("suboffsets", ctypes.c_void_p),
                ("internal", ctypes.c_void_p)]


def _address(seen):
    """Where a memoryview without gaps is, also if it is read-only, which ctypes refuses. The
    memoryview keeps it there."""
    buffer = _Buffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(seen), ctypes.byref(buffer), 0)
    address = buffer.buf
    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(buffer))
    return address


def _no_gaps(shape, strides, what):
    wanted = 1
    for size, stride in zip(reversed(shape), reversed(list(strides))):
        if size > 1 and stride != wanted and 0 not in shape:
            raise errors.ArgumentError(f"{what} is not contiguous: its elements have to lie one "
                                       "after the other, row by row (numpy.ascontiguousarray() or "
                                       "tensor.contiguous() make a copy that does)")
        wanted *= size


def calculates(dtype):
    """Can arrays that `at` makes of this type be calculated with?"""
    try:
        import ml_dtypes, numpy  # noqa: F401, E401
        return True
    except ImportError:
        return dtype != "bf16"


def at(address, dtype, shape, keep, read_only=False):
    """Memory of the library as an array: NumPy's, or a memoryview where there is no NumPy. bf16 is
    shown as 16-bit integers, unless the package ml_dtypes is there. `keep` lives as long."""
    count = math.prod(shape)
    block = (ctypes.c_char * (count * SIZES[dtype])).from_address(address) if count else bytearray()
    if count:
        block._keep = keep
    try:
        import numpy
    except ImportError:
        flat = memoryview(block).cast("B").cast(NAMES[dtype][1] or "H")
        if read_only:
            flat = flat.toreadonly()
        return flat.cast("B").cast(flat.format, list(shape)) if len(shape) > 1 else flat
    if dtype == "bf16":
        try:
            from ml_dtypes import bfloat16 as kind
        except ImportError:
            kind = numpy.uint16
    else:
        kind = numpy.dtype(NAMES[dtype][1])
    array = numpy.frombuffer(block, dtype=kind, count=count).reshape(shape)
    if read_only:
        array.flags.writeable = False
    return array


def empty(dtype, shape):
    """A new array of the program's own, filled by the library: as `at` shows memory."""
    bytes_ = math.prod(shape) * SIZES[dtype]
    block = (ctypes.c_char * max(bytes_, 1))()
    return at(ctypes.addressof(block), dtype, shape, block), ctypes.addressof(block)
