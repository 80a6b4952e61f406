# SPDX-License-Identifier: MIT
"""ZeRO-style sharded optimizers and data-parallel training.

::

    import czero, numpy as np

    def train(group):
        weights, gradients = np.zeros(1000, np.float32), np.zeros(1000, np.float32)
        zero = czero.Zero(group, czero.Model({"weights": (weights, gradients)}), "adamw", lr=0.1)
        for _ in range(200):
            gradients[:] = weights - group.rank
            zero.step()                     # mean over ranks, update, back to all ranks
        return weights[0], zero.state_bytes

    print(czero.launch(train, ranks=4))

``czero.torch`` has a drop-in for PyTorch's ZeroRedundancyOptimizer. docs/python.md has the rest.
"""
from . import sched
from ._library import lib as _lib
from .averaging import Averager
from .checkpoint import Archive, Checkpoint, Loaded
from .ddp import DDP, Bucket
from .errors import (ArgumentError, Error, FileError, FormatError, InternalError, MismatchError,
                     OutOfMemoryError, PeerError, StateError, UnsupportedError, WaitTimeoutError)
from .group import Group, Work, launch
from .hooking import PostLocalSGD, PowerSGD, hooks
from .join import Join, Joinable
from .model import Model
from .optim import LossScale, Optim, ParamGroup, Step, Zero, rules
from .parts import Parts
from .planning import plan
from .rule import Rule
from .sampler import Sampler

__version__ = _lib.cz_version().decode()


def build_info():
    """How the library was built and what it uses here, in one line, for bug reports."""
    return _lib.cz_build_info().decode()


__all__ = [
    "Archive", "ArgumentError", "Averager", "Bucket", "Checkpoint", "DDP", "Error", "FileError",
    "FormatError", "Group", "InternalError", "Join", "Joinable", "Loaded", "LossScale", "MismatchError",
    "Model", "Optim", "OutOfMemoryError", "ParamGroup", "Parts", "PeerError", "PostLocalSGD", "PowerSGD",
    "Rule", "Sampler", "StateError", "Step", "UnsupportedError", "WaitTimeoutError", "Work", "Zero",
    "build_info", "hooks", "launch", "plan", "rules", "sched",
]
