# SPDX-License-Identifier: MIT
"""The base of all structs in _declarations.py."""
import ctypes


class Struct(ctypes.Structure):
    """A struct of the library, begun as its _INIT begins it; fields may be given by name."""

    _defaults_: dict = {}

    def __init__(self, **fields):
        super().__init__()
        if self._fields_[0][0] == "size":
            self.size = ctypes.sizeof(self)
        for name, value in {**self._defaults_, **fields}.items():
            setattr(self, name, value)
