# SPDX-License-Identifier: MIT
"""Learning-rate schedulers, with PyTorch's names and rates; of an :class:`Optim` or a
:class:`Zero`, on which every rank makes and steps the same ones."""
from __future__ import annotations

import ctypes
import typing

from . import _declarations as c
from . import _limits, errors, state
from ._library import Handle, Thrown, call, called, choice, lib

if typing.TYPE_CHECKING:
    from .optim import Optim, Zero
    Optimizer = typing.Union[Optim, Zero]


class Scheduler(Handle):
    """Sets the rates of an optimizer's parameter groups, once per epoch, or per step."""

    _destroy = "cz_sched_destroy"

    def __init__(self, optim, function, *arguments, keep=None, first_epoch=None, thrown=None):
        self.optim, self._thrown = optim, thrown or Thrown()
        handle, rest = ctypes.c_void_p(), ()
        if first_epoch is not None:
            rest = (c.cz_sched_options(first_epoch=first_epoch),)
        target = () if optim is None else (optim._optim,)
        call(getattr(lib, f"cz_sched_create_{function}")(ctypes.byref(handle), *target, *arguments,
                                                         *rest), self._thrown)
        self._own(handle, keep=keep, needs=() if optim is None else (optim,))

    def step(self) -> None:
        """Go to the next epoch: after the optimizer's step."""
        call(lib.cz_sched_step(self._ptr), self._thrown)

    def step_to(self, epoch: float) -> None:
        """Go to an epoch, forwards or back."""
        call(lib.cz_sched_step_to(self._ptr, epoch), self._thrown)

    @property
    def last_lr(self) -> list[float]:
        """The rate that the last step left with each parameter group."""
        return [lib.cz_sched_last_lr(self._ptr, index)
                for index in range(len(self.optim.param_groups))]

    def state_dict(self) -> dict:
        """Everything but functions and groups of ranks."""
        handle = ctypes.c_void_p()
        call(lib.cz_sched_state_dict(self._ptr, ctypes.byref(handle)))
        return state.take(handle)

    def load_state_dict(self, values: dict) -> None:
        """Become what was saved. Rates are not set: they are the optimizer's."""
        with state.Given(values) as handle:
            call(lib.cz_sched_load_state_dict(self._ptr, handle))


class StepLR(Scheduler):
    """base gamma^floor(t / step_size)"""

    def __init__(self, optim: Optimizer, step_size: int, gamma: float = 0.1, *,
                 first_epoch: int = 0):
        super().__init__(optim, "step", step_size, gamma, first_epoch=first_epoch)


class MultiStepLR(Scheduler):
    """base gamma^n where n milestones are t or less"""

    def __init__(self, optim: Optimizer, milestones: list[int], gamma: float = 0.1, *,
                 first_epoch: int = 0):
        listed = _limits.array(ctypes.c_int64, milestones, "milestones")
        super().__init__(optim, "multi_step", listed, len(milestones), gamma,
                         first_epoch=first_epoch)


class ExponentialLR(Scheduler):
    """base gamma^t"""

    def __init__(self, optim: Optimizer, gamma: float, *, first_epoch: int = 0):
        super().__init__(optim, "exponential", gamma, first_epoch=first_epoch)


class ConstantLR(Scheduler):
    """base factor while t < total_iters, then base"""

    def __init__(self, optim: Optimizer, factor: float = 1 / 3, total_iters: int = 5, *,
                 first_epoch: int = 0):
        super().__init__(optim, "constant", factor, total_iters, first_epoch=first_epoch)


class LinearLR(Scheduler):
    """base times a factor from start_factor to end_factor in total_iters epochs"""

    def __init__(self, optim: Optimizer, start_factor: float = 1 / 3, end_factor: float = 1.0,
                 total_iters: int = 5, *, first_epoch: int = 0):
        super().__init__(optim, "linear", start_factor, end_factor, total_iters,
                         first_epoch=first_epoch)


class PolynomialLR(Scheduler):
    """base (1 - t / total_iters)^power"""

    def __init__(self, optim: Optimizer, total_iters: int = 5, power: float = 1.0, *,
                 first_epoch: int = 0):
        super().__init__(optim, "polynomial", total_iters, power, first_epoch=first_epoch)


class CosineAnnealingLR(Scheduler):
    """eta_min + (base - eta_min) (1 + cos(pi t / T_max)) / 2"""

    def __init__(self, optim: Optimizer, T_max: int, eta_min: float = 0.0, *,
                 first_epoch: int = 0):
        super().__init__(optim, "cosine", T_max, eta_min, first_epoch=first_epoch)


class CosineAnnealingWarmRestarts(Scheduler):
    """The same from base again after T_0 epochs, then after T_mult times as many each time."""

    def __init__(self, optim: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, *,
                 first_epoch: int = 0):
        super().__init__(optim, "warm_restarts", T_0, T_mult, eta_min, first_epoch=first_epoch)


class _OfFunction(Scheduler):
    _kind = ""

    def __init__(self, optim: Optimizer, function: typing.Callable[[int], float] | list, *,
                 first_epoch: int = 0):
        thrown = Thrown()

        if isinstance(function, (list, tuple)) and len(function) != len(optim.param_groups):
            raise _of_groups(f"functions of {type(self).__name__}", len(function), optim)

        @called
        def factor(epoch, param_group, _):
            try:
                one = function[param_group] if isinstance(function, (list, tuple)) else function
                return float(one(epoch))
            except BaseException as exception:
                thrown.keep(exception)
                return float("nan")  # which no rule allows: the call fails, and nothing changes
        callback = c.cz_sched_function(factor)
        super().__init__(optim, self._kind, callback, None, keep=callback, thrown=thrown,
                         first_epoch=first_epoch)


class LambdaLR(_OfFunction):
    """base function(t); one function, or a list of one for each parameter group"""

    _kind = "lambda"


class MultiplicativeLR(_OfFunction):
    """base function(1) function(2) … function(t)"""

    _kind = "multiplicative"


class OneCycleLR(Scheduler):
    """One cycle of total_steps epochs: up from max_lr / div_factor to max_lr, and down to almost
    nothing; the momentum the other way. `max_lr`: a number, or one for each parameter group."""

    def __init__(self, optim, max_lr, total_steps, *, pct_start=0.3, anneal_strategy="cos",
                 cycle_momentum=True, base_momentum=0.85, max_momentum=0.95, div_factor=25.0,
                 final_div_factor=1e4, three_phase=False, first_epoch=0):
        single, listed = _one_or_list(max_lr, "max_lr", optim)
        options = c.cz_sched_one_cycle_options(
            first_epoch=first_epoch, pct_start=pct_start or -1, base_momentum=base_momentum or -1,
            max_momentum=max_momentum or -1, div_factor=div_factor,
            final_div_factor=final_div_factor, max_lrs=listed,
            linear={"cos": 0, "linear": 1}.get(anneal_strategy, -1), three_phase=three_phase,
            fixed_momentum=not cycle_momentum)
        super().__init__(optim, "one_cycle", single, total_steps, options)


class CyclicLR(Scheduler):
    """Up from base_lr to max_lr and down again, for ever, momentum the other way."""

    def __init__(self, optim, base_lr, max_lr, step_size_up=2000, step_size_down=0, *,
                 mode="triangular", gamma=1.0, cycle_momentum=True, base_momentum=0.8,
                 max_momentum=0.9, first_epoch=0):
        single, listed = _one_or_list(base_lr, "base_lr", optim)
        top, tops = _one_or_list(max_lr, "max_lr", optim)
        options = c.cz_sched_cyclic_options(
            first_epoch=first_epoch, step_size_up=step_size_up, step_size_down=step_size_down,
            gamma=gamma or -1, base_momentum=base_momentum or -1, max_momentum=max_momentum or -1,
            base_lrs=listed, max_lrs=tops, fixed_momentum=not cycle_momentum,
            mode=choice("mode", "cz_sched_cycle", "CZ_SCHED_", mode))
        super().__init__(optim, "cyclic", single, top, options)


class ReduceLROnPlateau(Scheduler):
    """Multiply the rates by `factor` when a metric has not become better in `patience` reports and
    one more: ``step(metric)``. With a group the ranks agree on one metric."""

    def __init__(self, optim, mode="min", factor=0.1, patience=10, threshold=1e-4, *,
                 threshold_mode="rel", cooldown=0, min_lr=0.0, eps=1e-8, group=None,
                 agree="average"):
        single, listed = _one_or_list(min_lr, "min_lr", optim)
        options = c.cz_sched_plateau_options(
            factor=factor, patience=patience or -1, threshold=threshold or -1, cooldown=cooldown,
            min_lr=single, eps=eps or -1, min_lrs=listed,
            maximize={"min": 0, "max": 1}.get(mode, -1),
            absolute={"rel": 0, "abs": 1}.get(threshold_mode, -1), group=group and group._ptr,
            agree=choice("agree", "cz_reduction", "CZ_", agree))
        self._group = group
        super().__init__(optim, "plateau", options)

    def step(self, metric: float) -> None:  # type: ignore[override]
        """Tell it how good the model is now. Collective if it has a group."""
        call(lib.cz_sched_step_metric(self._ptr, metric))


class _OfSchedulers(Scheduler):
    def __init__(self, schedulers, function, *more):
        schedulers = list(schedulers)
        handles = (ctypes.c_void_p * max(len(schedulers), 1))(
            *[one._ptr.value for one in schedulers])
        kept = [one._end.peek() for one in schedulers]
        super().__init__(None, function, handles, len(schedulers), *more, keep=kept)
        self.optim, self._members = schedulers[0].optim, schedulers
        self._needs = (self.optim,)
        self._handle.all += self.optim._handle.all
        for one in schedulers:  # they belong to this one now
            one._end.detach()


class SequentialLR(_OfSchedulers):
    """One scheduler after the other: schedulers[i] begins at epoch milestones[i - 1]. They belong
    to this one from now on."""

    def __init__(self, schedulers: list[Scheduler], milestones: list[int]):
        schedulers = list(schedulers)
        if schedulers and len(milestones) != len(schedulers) - 1:  # C takes it on trust
            raise errors.ArgumentError(f"there are {len(milestones)} milestones for "
                                       f"{len(schedulers)} schedulers; wanted are "
                                       f"{len(schedulers) - 1}")
        super().__init__(schedulers, "sequential",
                         _limits.array(ctypes.c_int64, milestones, "milestones"))


class ChainedScheduler(_OfSchedulers):
    """All at the same time, so that factors multiply. They belong to this one from now on."""

    def __init__(self, schedulers: list[Scheduler]):
        super().__init__(schedulers, "chained")


def _one_or_list(value, what, optim):
    if not isinstance(value, (list, tuple)):
        return value, None
    if len(value) != len(optim.param_groups):  # C takes it on trust
        raise _of_groups(what, len(value), optim)
    return 0.0, (ctypes.c_double * len(value))(*value)


def _of_groups(what, count, optim):
    return errors.ArgumentError(f"{what}: there are {count}, and {len(optim.param_groups)} "
                                "parameter groups")
