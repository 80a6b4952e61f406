# SPDX-License-Identifier: MIT
"""Optimizers: unsharded (:class:`Optim`), and sharded over the ranks of a group (:class:`Zero`)."""
from __future__ import annotations

import collections.abc
import contextlib
import ctypes
import math
import typing

from . import _arrays, _limits
from . import _declarations as c
from . import errors, state
from ._library import Handle, Thrown, call, called, choice, hypers, lib, text
from .rule import Rule, Table, number_of_granule

if typing.TYPE_CHECKING:
    from .ddp import DDP
    from .group import Group
    from .model import Model
    from .parts import Parts


def rules() -> list[str]:
    """The names of all update rules: "sgd", "adam", "adamw", …"""
    names, index = [], 0
    while (name := lib.cz_rule_name(index)) is not None:
        names.append(name.decode())
        index += 1
    return names


class Step(typing.NamedTuple):
    """What a step found out."""

    #: What the closure returned; NaN without one.
    loss: float
    #: L2 of all gradients before they were clipped; NaN where it was not asked for.
    norm: float
    #: Nothing was updated, because of a gradient that is not finite.
    skipped: bool


class LossScale:
    """A factor by which a program multiplies its loss, and so its gradients, so that small ones do
    not vanish in 16 bits. A step that is given it divides by it, skips the update where a gradient
    is not finite, and changes it as PyTorch's GradScaler does, alike on all ranks::

        scale = czero.LossScale()
        … backward of loss * scale.scale …
        zero.step(loss_scale=scale)

    Args:
        scale: to begin with, above 0.
        growth: `scale` is multiplied by it after `interval` steps in a row with finite gradients.
        backoff: it is multiplied by this where one is not finite, and the step is skipped.
        interval: 0: `scale` stays, and skipping is left to `skip_nonfinite`.

    Numbers out of range are refused by the step, with an ArgumentError.
    """

    def __init__(self, scale: float = 65536.0, *, growth: float = 2.0, backoff: float = 0.5,
                 interval: int = 2000):
        self._numbers = c.cz_loss_scale(scale=scale, growth=growth, backoff=backoff,
                                        interval=interval)

    @property
    def scale(self) -> float:
        """What the loss is to be multiplied by now."""
        return self._numbers.scale

    @property
    def good_steps(self) -> int:
        """Steps in a row with finite gradients since it last changed."""
        return self._numbers.good_steps

    def state_dict(self) -> dict[str, float | int]:
        """All numbers by name, for the `common` dictionary of a checkpoint."""
        return {name: getattr(self._numbers, name) for name in
                ("scale", "growth", "backoff", "interval", "good_steps")}

    def load_state_dict(self, values: collections.abc.Mapping[str, float | int]) -> None:
        """Go on from :meth:`state_dict`.

        Raises:
            ArgumentError: other names. Nothing was changed.
        """
        if set(values) != set(self.state_dict()):
            raise errors.ArgumentError(f"a loss scale has {', '.join(self.state_dict())}, "
                                       f"and here are {', '.join(map(str, values)) or 'none'}")
        given = c.cz_loss_scale(**values)
        ctypes.pointer(self._numbers)[0] = given  # in place: passes may have its address


class ParamGroup(collections.abc.MutableMapping):
    """The hyper-parameters of a parameter group, by name: read and set while training. A value set
    counts from the next step on; with a sharded optimizer it is to be set alike on every rank.
    Names that the rule does not know are kept beside, and saved."""

    def __init__(self, owner, index):
        self._owner, self._index = owner, index

    @property
    def params(self) -> list[int]:
        """The numbers of its parameters, in order."""
        optim = self._owner._optim
        count = lib.cz_optim_group_params(optim, self._index, None, 0)
        numbers = (ctypes.c_int64 * max(count, 1))()
        lib.cz_optim_group_params(optim, self._index, numbers, count)
        return numbers[:count]

    def __getitem__(self, name: str) -> float:
        value = ctypes.c_double()
        if name not in list(self):
            raise KeyError(name)
        call(lib.cz_optim_get_hyper(self._owner._optim, self._index, text(name),
                                    ctypes.byref(value)))
        return value.value

    def __setitem__(self, name: str, value: float) -> None:
        put = lib.cz_optim_set_hyper if name in list(self) else lib.cz_optim_add_hyper
        call(put(self._owner._optim, self._index, text(name), value))

    def __delitem__(self, name):
        raise TypeError("hyper-parameters are set, not removed")

    def __iter__(self):
        number = 0
        while (name := lib.cz_optim_hyper_name(self._owner._optim, self._index,
                                               number)) is not None:
            yield name.decode()
            number += 1

    def __len__(self):
        return sum(1 for _ in self)

    def __repr__(self):
        return f"<parameter group of {len(self.params)}: {dict(self)}>"


class _Rules:
    """The rules of an optimizer as the library takes them. Those in Python have a table each, which
    has to live as long as the optimizer."""

    def __init__(self):
        self.tables, self._found = [], []

    def find(self, given):
        for rule, found in self._found:
            if rule is given:
                return found
        if isinstance(given, Rule):
            self.tables.append(Table(given))
            found = ctypes.pointer(self.tables[-1].table)
        elif isinstance(given, c.cz_rule):  # of this package's own
            found = ctypes.pointer(given)
        else:
            found = lib.cz_rule_find(text(given))
            if not found:
                raise errors.ArgumentError(f"there is no rule '{given}'; there are "
                                           f"{', '.join(rules())}")
        self._found.append((given, found))
        return found

    def raise_what_came(self):
        for table in self.tables:
            table.raise_what_came()


def _is_whole(rule):
    return bool(rule.contents.update_tensor)


def _master(word):
    return 0 if word is None else choice("master", "cz_master", "CZ_MASTER_", word)


def _state_dtype(word):
    if word is not None and word not in _arrays.NAMES:
        raise errors.ArgumentError(f"state_dtype is 'f32', 'bf16', 'u8' or 'f64', not {word!r}")
    return 0 if word is None else _arrays.NAMES[word][0]


def _average(given):
    """For the library, of None, a decay, or a dictionary of the fields of cz_moving_average."""
    if given is None:
        return None
    fields = dict(given) if isinstance(given, collections.abc.Mapping) else {"decay": given}
    kind = fields.pop("kind", "ema")
    unknown = [name for name in fields if name not in ("decay", "warm_up", "start", "every")]
    if unknown:
        raise errors.ArgumentError("average has 'kind', 'decay', 'warm_up', 'start' and 'every', "
                                   f"not {unknown[0]!r}")
    return c.cz_moving_average(
        kind=choice("kind", "cz_moving_average_kind", "CZ_MOVING_AVERAGE_", kind), **fields)


class _Groups:
    """Parameter groups for the library, of dictionaries with "params", hyper-parameters, and
    "rule", "master", "state_dtype" and "average" as of :class:`Optim`, and "granule" as of
    :class:`Rule`."""

    def __init__(self, model, given, known):
        self.count = len(given or ())
        self.state_dtypes = {}  # by number of the parameter, where its group says one
        self.wholes = {}        # and, where it has a rule of its own, does that see whole tensors?
        self.array = (c.cz_param_group * max(self.count, 1))()
        self._keep = []
        for place, one in enumerate(given or ()):
            if not isinstance(one, dict) or "params" not in one:
                raise errors.ArgumentError(f"parameter group {place} is a dictionary with 'params' "
                                           f"(names or numbers), not {one!r}")
            own = {name: value for name, value in one.items()
                   if name not in ("params", "rule", "master", "state_dtype", "granule",
                                   "average")}
            params = one["params"]
            params = [params] if isinstance(params, (str, int)) else list(params)
            numbers = [model.index(param) for param in params]
            listed, values = (ctypes.c_int64 * max(len(numbers), 1))(*numbers), hypers(own)
            state_dtype, rule = one.get("state_dtype"), one.get("rule")
            average = _average(one.get("average"))
            self.array[place] = c.cz_param_group(
                params=listed, param_count=len(numbers), hypers=values,
                master=_master(one.get("master")), state_dtype=_state_dtype(state_dtype),
                granule=number_of_granule(one.get("granule")),
                average=average and ctypes.pointer(average))
            if state_dtype is not None:
                self.state_dtypes.update(dict.fromkeys(numbers, state_dtype))
            if rule is not None:
                self.array[place].rule = found = known.find(rule)
                self.wholes.update(dict.fromkeys(numbers, _is_whole(found)))
            self._keep.append((listed, values, average))


class _Stepping(Handle):
    """What the two kinds of optimizers have in common."""

    _prefix = ""
    _only_reads = True  # gradients, unless they are clipped
    _rules: _Rules
    model: Model
    _whole = False            # the rule works on whole tensors, which are of one type
    _wholes: dict = {}        # and that of a group, by number of the parameter
    _state_dtype = None       # of what is not below; None: f32, or f64
    _state_dtypes: dict = {}  # by number of the parameter

    def _dtype_of(self, number, slot):
        value = self.model._arrays[number][0].dtype
        if value != "f64" and slot in ("master_param", "average"):
            return "f32"
        if value == "f64" or self._wholes.get(number, self._whole):
            return value
        dtype = self._state_dtypes.get(number, self._state_dtype) or "f32"
        return "f32" if dtype == "u8" else dtype  # what codes stand for

    @property
    def _optim(self) -> ctypes.c_void_p:
        raise NotImplementedError

    @property
    def param_groups(self) -> list[ParamGroup]:
        """A list of :class:`ParamGroup`."""
        return [ParamGroup(self, index) for index in range(self._info().group_count)]

    def step(self, closure: collections.abc.Callable[[], float | None] | None = None, *,
             gradients: collections.abc.Sequence | None = None, max_norm: float = 0.0,
             skip_nonfinite: bool = False, norm: bool = False,
             allow_no_gradients: bool = False, loss_scale: LossScale | None = None) -> Step:
        """Update the parameters. Collective if the optimizer is sharded.

        Args:
            closure: called once before anything else; clears the gradients, runs forward and
                backward, and returns the loss. An exception of it comes out here, and the other
                ranks raise an error with its text.
            gradients: arrays to use instead of the model's, one per parameter of the model, of the
                same shape and type; None: skip that parameter. They may be read-only where the
                step only reads them: not with `max_norm` or `loss_scale`, nor where it reduces
                them.
            max_norm: above 0: gradients whose L2 norm is larger are scaled down to it, in place.
            skip_nonfinite: no update on any rank where a gradient is infinite or NaN.
            norm: have the norm in the result.
            allow_no_gradients: where no trainable parameter has a gradient, on any rank, do
                nothing; otherwise that is a StateError, since gradients were forgotten.
            loss_scale: what gradients are divided by before they are clipped; the step changes it.

        Returns:
            Step: loss, norm, skipped.

        Raises:
            MismatchError: ranks differ in hyper-parameters, options or frozen parameters.
            StateError, ArgumentError, OutOfMemoryError: as in czero/zero.h. Nothing was changed.
        """
        thrown, options, result = Thrown(), c.cz_step_options(), c.cz_step_result()
        views = []
        if closure is not None:
            def run(loss, _):
                value = closure()
                loss[0] = math.nan if value is None else float(value)
            options.closure = type(options.closure)(thrown.guard(run))
        if gradients is not None:
            written = bool(max_norm) or loss_scale is not None or not self._only_reads
            for place, gradient in enumerate(gradients):
                views.append(None if gradient is None
                             else _arrays.view(gradient, f"gradient {place}", written))
                if views[-1] is not None:
                    value = self.model._arrays[place][0]
                    if (views[-1].shape, views[-1].dtype) != (value.shape, value.dtype):
                        raise errors.ArgumentError(
                            f"gradient {place} is {views[-1].dtype} of shape {views[-1].shape}, "
                            f"its parameter {value.dtype} of shape {value.shape}")
            array = (ctypes.c_void_p * max(len(views), 1))(
                *[one and one.address for one in views])
            options.gradients, options.gradient_count = array, len(views)
        options.max_norm, options.skip_nonfinite = max_norm, skip_nonfinite
        options.norm, options.allow_no_gradients = norm, allow_no_gradients
        if loss_scale is not None:
            options.loss_scale = ctypes.pointer(loss_scale._numbers)
        plain = (closure is None and gradients is None and not max_norm and not skip_nonfinite
                 and not norm and not allow_no_gradients and loss_scale is None)
        call(getattr(lib, self._prefix + "step")(self._ptr, None if plain else options, result),
             thrown)
        self._rules.raise_what_came()
        return Step(result.loss, result.norm, bool(result.skipped))

    def zero_grad(self, to_none: bool = False) -> None:
        """Set the gradients of the groups' parameters to zero; or say that they have none, until
        ``model.set_gradient()`` gives one again."""
        call(lib.cz_optim_zero_grad(self._optim, to_none))

    @contextlib.contextmanager
    def evaluated(self) -> collections.abc.Iterator[None]:
        """``with zero.evaluated(): …``: values are those to be evaluated, bit for bit what they
        were afterwards: averages (option `average`), or the mean of a schedule-free rule. Steps,
        saves and loads are a StateError meanwhile. Collective if the optimizer is sharded.

        Raises:
            StateError: no group has an average, and the rule evaluates what it trains.
        """
        evaluate = getattr(lib, self._prefix + "evaluate")
        call(evaluate(self._ptr, True))
        try:
            yield
        finally:
            call(evaluate(self._ptr, False))

    def add_param_group(self, group: dict) -> None:
        """Append a parameter group ``{"params": [names or numbers], "lr": …}`` of parameters that
        are in none yet. Collective if the optimizer is sharded."""
        groups = _Groups(self.model, [group], self._rules)
        call(getattr(lib, self._prefix + "add_param_group")(self._ptr, groups.array))
        self._state_dtypes = {**self._state_dtypes, **groups.state_dtypes}
        self._wholes = {**self._wholes, **groups.wholes}

    def fingerprint(self) -> str:
        """A number of 128 bits for all values and all state, as text: the same on any number of
        ranks, for every partition and backend. Collective if the optimizer is sharded."""
        number = (ctypes.c_uint64 * 2)()
        call(getattr(lib, self._prefix + "fingerprint")(self._ptr, number))
        return f"{number[0]:016x}{number[1]:016x}"

    def _info(self):
        info = getattr(c, self._prefix + "info")()
        call(getattr(lib, self._prefix + "get_info")(self._ptr, info))
        return info

    @property
    def state_bytes(self) -> int:
        """Bytes of optimizer state on this rank."""
        return self._info().state_bytes

    @property
    def skip_count(self) -> int:
        """Steps that were skipped because of a gradient that is not finite."""
        return self._info().skip_count

    def state(self, param: str | int, slot: str, begin: int = 0) -> typing.Any:
        """State of a parameter from element `begin` on, as far as it is contiguous here: a
        read-only view until the next step, as a flat array; None where there is none here.

        Args:
            slot: the rule's name for it, such as "exp_avg".
        """
        data, count = ctypes.c_void_p(), ctypes.c_int64()
        number = self.model.index(param)
        call(lib.cz_optim_state(self._optim, number, text(slot), begin, ctypes.byref(data),
                                ctypes.byref(count)))
        if not data.value or not count.value:
            return None
        return _arrays.at(data.value, self._dtype_of(number, slot), (count.value,), self,
                          read_only=True)

    def scalar(self, param: str | int, slot: str = "step") -> float:
        """A scalar slot of a parameter; "step": the steps that updated it, 0 if none here."""
        value = ctypes.c_double()
        call(lib.cz_optim_scalar(self._optim, self.model.index(param), text(slot),
                                 ctypes.byref(value)))
        return value.value


class Optim(_Stepping):
    """An unsharded optimizer over a model. Local.

    Args:
        model: kept alive; its list of parameters is frozen from now on.
        rule: one of :func:`rules`, or a :class:`Rule` of your own.
        groups: parameter groups ``[{"params": […], "lr": …}, …]``; None: one of all parameters.
            Parameters that no group lists are left alone. A group with a "rule" of its own begins
            with that rule's defaults: `values` are for the optimizer's.
        threads: that share the update, which has the same bits with any number; 0: CZERO_THREADS,
            else the cores that this rank has to itself.
        master: "copy": 16-bit values have an f32 copy in the state, the slot "master_param";
            "none": they have none, and are rounded by chance. None: "copy". A group may say its
            own, as the next one.
        state_dtype: of the other slots: "f32", "bf16", or, of Adam, AdamW, Lion and SGD, "u8":
            codes of 8 bits with a scale for each 256 elements. None: "f32" ("f64" where values
            are).
        seed: of rounding by chance.
        average: a moving average of values, see :meth:`evaluated`: a decay, such as 0.999, or
            ``{"kind": "ema" or "mean", "decay": …, "warm_up": …, "start": …, "every": …}``, as
            cz_moving_average has them (docs/rules.md). A group may say its own.
        u8_from: with "u8", parameters of fewer elements have their state in f32; 0: 4096.
        values: hyper-parameters of all groups, such as ``lr=1e-3``; ``betas=(b1, b2)`` is short for
            ``beta1`` and ``beta2``.

    Raises:
        ArgumentError: an unknown or missing hyper-parameter, or one out of its range; a parameter
            in two groups; parameters of f64 and others, or that share memory.
    """

    _destroy = "cz_optim_destroy"
    _prefix = "cz_optim_"

    def __init__(self, model: Model, rule: str | Rule = "adamw", *,
                 groups: list[dict] | None = None, threads: int = 0, master: str | None = None,
                 state_dtype: str | None = None, seed: int = 0,
                 average: float | dict | None = None, u8_from: int = 0, **values):
        self.model, self._rules = model, _Rules()
        given = self._rules.find(rule)
        listed, handle = _Groups(model, groups, self._rules), ctypes.c_void_p()
        averaged = _average(average)
        options = c.cz_optim_options(groups=listed.array if groups is not None else None,
                                     group_count=listed.count, threads=threads,
                                     master=_master(master),
                                     state_dtype=_state_dtype(state_dtype), seed=seed,
                                     average=averaged and ctypes.pointer(averaged),
                                     u8_from=u8_from)
        self._state_dtype, self._state_dtypes = state_dtype, listed.state_dtypes
        self._whole, self._wholes = _is_whole(given), listed.wholes
        call(lib.cz_optim_create(ctypes.byref(handle), model._ptr, given, hypers(values), options))
        self._own(handle, keep=self._rules, needs=(model,))

    @property
    def _optim(self):
        return self._ptr

    def state_dict(self) -> dict:
        """A copy of the state: ``{"rule": …, "state": {name: {"step": …, slot: array, …}},
        "param_groups": {"0": {"params": [names], "lr": …}, …}}``."""
        handle = ctypes.c_void_p()
        call(lib.cz_optim_state_dict(self._ptr, ctypes.byref(handle)))
        return state.take(handle)

    def load_state_dict(self, values: dict, *, missing: str = "none") -> None:
        """Take state, step counts and hyper-parameters from a dictionary, by names.

        Args:
            missing: what becomes of a parameter that it has no state of: "none": it has none
                afterwards; "keep": it keeps its own; "refuse": ArgumentError.
        """
        options = c.cz_optim_load_options(
            missing=choice("missing", "cz_missing_state", "CZ_MISSING_", missing))
        with state.Given(values) as handle:
            call(lib.cz_optim_load_state_dict(self._ptr, handle, options))


class Zero(_Stepping):
    """A sharded optimizer: every rank keeps the state of its own shard only, updates that, and
    brings the new values to all ranks. The bits are those of one :class:`Optim` that is given the
    mean of all ranks' gradients, whatever the number of ranks.

    Collective, as are its step, loads, saves and consolidations. All ranks give the same model and
    options, which is checked; values are not made equal (:meth:`broadcast_parameters`).

    Args:
        group, model: kept alive.
        rule, groups, threads, master, state_dtype, seed, average, u8_from, values: as for
            :class:`Optim`.
        partition: "elements" (even cuts of everything), "greedy" (whole parameters, as PyTorch's
            ZeroRedundancyOptimizer), "given" (to the ranks in `owners`), or, with `ddp`, "buckets"
            and "bucket_pieces".
        owners: a rank for each parameter.
        gradients: "local": a step reduces them to the mean over ranks; "sum": to their sum;
            "reduced": somebody has, and only the owner's is read.
        ddp: a :class:`DDP` over the same model, whose passes reduce each gradient to its owner.
        overlap: with `ddp`, where steps are made: "none" (by :meth:`step`), "interleaved" (during
            the backward pass, bucket by bucket), "step" (at the end of each pass).
        overlap_gather: with "interleaved", values arrive during the next forward pass, which asks
            for each with :meth:`wait_param`.
        parameters_as_bucket_view: values move into memory of the optimizer's, where what a rank
            owns is one piece: see ``model.value(name)``, and `moved`.
        moved: called with (number of a parameter, its new array) where a value moves.

    Raises:
        MismatchError: the first difference between two ranks.
        ArgumentError, UnsupportedError, StateError, OutOfMemoryError: as in czero/zero.h.
    """

    _destroy = "cz_zero_destroy"
    _prefix = "cz_zero_"

    def __init__(self, group: Group, model: Model, rule: str | Rule = "adamw", *,
                 groups: list[dict] | None = None, partition: str = "elements",
                 gradients: str = "local", owners: collections.abc.Iterable[int] | None = None,
                 ddp: DDP | None = None, overlap: str = "none", overlap_gather: bool = False,
                 parameters_as_bucket_view: bool = False,
                 moved: collections.abc.Callable[[int, typing.Any], None] | None = None,
                 threads: int = 0, parts: Parts | None = None, master: str | None = None,
                 state_dtype: str | None = None, seed: int = 0,
                 average: float | dict | None = None, u8_from: int = 0, **values):
        self.group, self.model, self.ddp, self.parts = group, model, ddp, parts
        self._only_reads = gradients == "reduced"
        averaged, self._rules = _average(average), _Rules()
        handle, thrown = ctypes.c_void_p(), Thrown()
        given = self._rules.find(rule)
        listed = _Groups(model, groups, self._rules)
        self._state_dtype, self._state_dtypes = state_dtype, listed.state_dtypes
        self._whole, self._wholes = _is_whole(given), listed.wholes
        options = c.cz_zero_options(
            partition=choice("partition", "cz_partition", "CZ_PARTITION_", partition),
            gradients=choice("gradients", "cz_gradients", "CZ_GRADIENTS_", gradients),
            overlap=choice("overlap", "cz_overlap", "CZ_OVERLAP_", overlap),
            groups=listed.array if groups is not None else None, group_count=listed.count,
            overlap_gather=overlap_gather, threads=threads, ddp=ddp and ddp._ptr,
            parts=parts and parts._ptr, parameters_as_bucket_view=parameters_as_bucket_view,
            master=_master(master), state_dtype=_state_dtype(state_dtype), seed=seed,
            average=averaged and ctypes.pointer(averaged),
            u8_from=u8_from)
        if owners is not None:
            owners = list(owners)
            options.owners = _limits.array(ctypes.c_int, owners, "owners")
            options.owner_count = len(owners)
        if parameters_as_bucket_view:
            arrays, at = model._arrays, _arrays.at

            @called
            def tell(number, address, _):
                here, gradient = arrays[number]
                arrays[number] = (_arrays.View(address, here.dtype, here.shape, here.keep),
                                  gradient)
                if moved is not None:
                    thrown.guard(moved)(number, at(address, here.dtype, here.shape, here.keep))
            options.moved = type(options.moved)(tell)
        call(lib.cz_zero_create(ctypes.byref(handle), group._ptr, model._ptr, given,
                                hypers(values), options))
        # These two are used when it ends, too.
        self._own(handle, keep=(options.moved, self._rules), group=group, needs=(group, model))
        if ddp is not None:
            ddp._rules.append(self._rules)
        if (first := thrown.take()) is not None:
            raise first

    @property
    def _optim(self):
        return ctypes.c_void_p(lib.cz_zero_local_optim(self._ptr))

    def set_weight(self, weight: float) -> None:
        """What this rank's gradients count for in the mean that steps make, such as its number of
        examples; on all ranks or none. A rank of weight 0 takes part, and its gradients are not
        read. With `ddp` or `parts` those have the weights. Local; between steps."""
        call(lib.cz_zero_set_weight(self._ptr, weight))

    def set_overlap(self, overlap: str, *, max_norm: float = 0.0, skip_nonfinite: bool = False,
                    norm: bool = False, allow_no_gradients: bool = False,
                    loss_scale: LossScale | None = None) -> None:
        """Change option `overlap`, and say with which options, as for :meth:`step`, passes make
        their steps from the next one on; alike on all ranks, between passes. Local.

        Raises:
            ArgumentError: no `ddp`, or options with "none". UnsupportedError: with "interleaved",
                for all but `allow_no_gradients`.
        """
        options = c.cz_step_options(max_norm=max_norm, skip_nonfinite=skip_nonfinite, norm=norm,
                                    allow_no_gradients=allow_no_gradients)
        if loss_scale is not None:
            options.loss_scale = ctypes.pointer(loss_scale._numbers)
        given = max_norm or skip_nonfinite or norm or allow_no_gradients or loss_scale is not None
        call(lib.cz_zero_set_overlap(self._ptr, choice("overlap", "cz_overlap", "CZ_OVERLAP_",
                                                       overlap), options if given else None))
        self._inside = loss_scale  # whose numbers the library has the address of

    def trace(self) -> dict[str, tuple[int, float, int]]:
        """Where the time of this rank's steps went since it was made: (times, seconds, bytes) by
        "agree" (with waiting for slower ranks), "reduce", "update", "sync", and "fused", in which
        the last three are one pass. Local."""
        found = {}
        for name, number in c.ENUMS["cz_trace_point"].items():
            totals = c.cz_trace_totals()
            call(lib.cz_zero_trace(self._ptr, number, totals))
            found[name[len("CZ_TRACE_"):].lower()] = (totals.count, totals.seconds, totals.bytes)
        return found

    def broadcast_parameters(self, root: int = 0) -> None:
        """Every rank's parameters and buffers become those of rank `root`."""
        call(lib.cz_zero_broadcast_parameters(self._ptr, root))

    def check_replicas(self) -> None:
        """Do all ranks hold the same bits in every parameter and buffer? MismatchError if not."""
        call(lib.cz_zero_check_replicas(self._ptr))

    def check_fingerprint(self) -> None:
        """Has memory changed since :meth:`fingerprint`, with no step between? MismatchError."""
        call(lib.cz_zero_check_fingerprint(self._ptr))

    def reshard(self, partition: str = "elements",
                owners: collections.abc.Sequence[int] | None = None) -> None:
        """Make the shards anew; state moves with its elements, and no bit of the next step
        changes."""
        listed = None
        if owners is not None:
            owners = list(owners)
            listed = _limits.array(ctypes.c_int, owners, "owners")
        call(lib.cz_zero_reshard(
            self._ptr, choice("partition", "cz_partition", "CZ_PARTITION_", partition), listed,
            0 if owners is None else len(owners)))

    def wait_param(self, param: str | int) -> None:
        """With `overlap_gather`: wait until a parameter's value has come. Local."""
        call(lib.cz_zero_wait_param(self._ptr, self.model.index(param)))

    def state_dict(self, to: int | None = None) -> dict | None:
        """Put the state of all ranks together, as ``Optim.state_dict()`` has it, on rank `to`, or
        on every rank. None on the others. Beside the result a rank needs at most 48 MiB."""
        everywhere = to is None
        call(lib.cz_zero_consolidate_state_dict(self._ptr, c.CZ_ALL_RANKS if everywhere else to))
        if not everywhere and to != self.group.rank:
            return None
        handle = ctypes.c_void_p()
        call(lib.cz_zero_state_dict(self._ptr, ctypes.byref(handle)))
        return state.take(handle)

    def load_state_dict(self, values: dict) -> None:
        """Take state and hyper-parameters from a dictionary of any number of ranks, alike on all;
        it is left as it is.

        Raises:
            ArgumentError: another rule, other groups, names, shapes or slots. Nothing was changed.
            MismatchError: ranks have different dictionaries.
        """
        with state.Given(values) as handle:
            call(lib.cz_zero_load_state_dict(self._ptr, handle))
