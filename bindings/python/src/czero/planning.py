# SPDX-License-Identifier: MIT
"""Memory and traffic of each rank, known before anything is allocated."""
from __future__ import annotations

import ctypes
import os

from . import _arrays, _limits
from . import _declarations as c
from ._library import Handle, call, choice, hypers, lib, text
from .model import Model
from .optim import _Groups, _Rules
from .rule import Rule, number_of_granule


class _Shapes(Handle):
    _destroy = "cz_shapes_destroy"

    def __init__(self, given):
        handle = ctypes.c_void_p()
        if isinstance(given, Model):
            call(lib.cz_shapes_from_model(ctypes.byref(handle), given._ptr))
        elif isinstance(given, (str, bytes, os.PathLike)):
            call(lib.cz_shapes_read(ctypes.byref(handle), os.fsencode(given)))
        else:
            call(lib.cz_shapes_create(ctypes.byref(handle)))
        self._own(handle)
        if isinstance(given, dict):
            for name, (dtype, shape) in given.items():
                listed = _limits.array(ctypes.c_int64, shape, f"the shape of '{name}'")
                number = _arrays.NAMES.get(dtype, (0,))[0]
                call(lib.cz_shapes_add(self._ptr, text(name), number, len(shape), listed,
                                       c.CZ_SHAPE_PARAM))


class _Places:
    """The places of parameters that are no model's: by name where names were given."""

    def __init__(self, given):
        self._names = list(given) if isinstance(given, dict) else []

    def index(self, param):
        if not isinstance(param, str):
            return param
        if param not in self._names:
            raise KeyError(f"there is no parameter '{param}' among the shapes")
        return self._names.index(param)


def plan(shapes: Model | dict | str | os.PathLike, world_size: int = 1,
         rule: str | Rule = "adamw", *, unsharded: bool = False, partition: str = "elements", ddp: bool = False,
         overlap: str = "none", all_reduce: bool = False, parameters_as_bucket_view: bool = False,
         in_process: bool = False, parts: int = 0, granule: int | str | None = None, bucket_bytes: int = 0,
         first_bucket_bytes: int = 0, segment_bytes: int = 0, groups: list[dict] | None = None,
         average: bool = False,
         **values) -> list[dict[str, int]]:
    """What each rank of a training needs.

    Args:
        shapes: a :class:`Model`; ``{name: ("f32", (rows, columns))}``; or the path of a checkpoint,
            a safetensors or PyTorch file, or a list of shapes.
        granule: of all parameters, as of :class:`Rule`.
        groups: parameters with a rule of their own, ``[{"params": […], "rule": "sgd"}, …]``: by
            names, or of a path by numbers.
        average: moving averages of values, in the state.
        values: hyper-parameters that differ from the rule's defaults.

    Returns:
        A list of dictionaries, one per rank, of bytes: param_bytes, gradient_bytes, state_bytes,
        training_bytes (the most in a step), save_bytes, sent_bytes, … as in ``czero/plan.h``.
    """
    rules = _Rules()
    listed_groups = _Groups(shapes if isinstance(shapes, Model) else _Places(shapes), groups, rules)
    options = c.cz_plan_options(
        world_size=world_size, unsharded=unsharded, ddp=ddp, all_reduce=all_reduce,
        partition=choice("partition", "cz_partition", "CZ_PARTITION_", partition),
        overlap=choice("overlap", "cz_overlap", "CZ_OVERLAP_", overlap),
        views=parameters_as_bucket_view, in_process=in_process, parts=parts,
        granule=number_of_granule(granule),
        bucket_bytes=bucket_bytes, first_bucket_bytes=first_bucket_bytes,
        segment_bytes=segment_bytes, rule=rules.find(rule), average=average,
        groups=listed_groups.array if groups else None, group_count=listed_groups.count)
    listed = hypers(values)
    if values:
        options.hypers = listed
    handle = ctypes.c_void_p()
    with _Shapes(shapes) as given:
        call(lib.cz_plan_create(ctypes.byref(handle), given._ptr, options))
    try:
        ranks = []
        for rank in range(world_size):
            memory = c.cz_plan_memory()
            call(lib.cz_plan_rank(handle, rank, memory))
            ranks.append({field[0]: getattr(memory, field[0]) for field in memory._fields_[1:]})
        return ranks
    finally:
        lib.cz_plan_destroy(ctypes.byref(handle))
