# SPDX-License-Identifier: MIT
"""The base of all structs in _declarations.py."""
import ctypes

from ._limits import fit, limited


class Struct(ctypes.Structure):
    """A struct of the library, begun as its _INIT begins it; fields may be given by name."""

    _defaults_: dict = {}
    _limited_: dict = {}

    def __init_subclass__(cls):
        super().__init_subclass__()
        cls._limited_ = {name: (f"{name} of {cls.__name__}", kind)
                         for name, kind in cls._fields_ if limited(kind)}

    def __init__(self, **fields):
        super().__init__()
        if self._fields_[0][0] == "size":
            self.size = ctypes.sizeof(self)
        for name, value in {**self._defaults_, **fields}.items():
            setattr(self, name, value)

    def __setattr__(self, name, value):
        if (limit := self._limited_.get(name)) is not None:
            fit(*limit, value)
        super().__setattr__(name, value)
