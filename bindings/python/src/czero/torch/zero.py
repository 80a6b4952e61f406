# SPDX-License-Identifier: MIT
"""The drop-in for PyTorch's ZeroRedundancyOptimizer."""
import array
import ctypes
import enum
import importlib
import logging
import pickle

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join, Joinable, JoinHook

from .. import _arrays
from .. import _declarations as c
from .._library import call, lib
from . import groups, rules
from .shard import Shard

logger = logging.getLogger(__name__)

#: Classes that overlap with DDP takes, and the functional classes that PyTorch has of them.
functional_optim_map: dict = {}


def register_functional_optim(key, optim):
    """Let overlap take an optimizer class `key`, whose functional class is `optim`. A class that is
    there already stays as it is."""
    functional_optim_map.setdefault(key, optim)


def _fill_map():
    for name in ("Adagrad", "Adam", "AdamW", "SGD", "Adadelta", "RMSprop", "Rprop", "Adamax"):
        for package in ("torch.distributed.optim", "torch.distributed.optim.functional_"
                        + name.lower()):
            found = getattr(importlib.import_module(package), f"_Functional{name}", None)
            if found is not None:
                break
        register_functional_optim(getattr(torch.optim, name), found)
    for one in (torch.optim.NAdam, torch.optim.RAdam):
        register_functional_optim(one, None)


def _broadcast_object(obj, src_rank, group=None, device=None):
    """An object of the global rank `src_rank`, on every rank."""
    given = [obj]
    dist.broadcast_object_list(given, src_rank, group=group)
    return given[0]


class _JoinHook(JoinHook):
    """What a rank does whose inputs are used up: the others' steps."""

    def __init__(self, zero):
        self.zero = zero

    def main_hook(self):
        self.zero._step(joined=True)


class _OverlapStatus(enum.IntEnum):
    UNINITIALIZED = 0
    DDP_HAS_REBUILT_BUCKETS = 1
    INITIALIZED = 2


class _OverlapInfo:
    """How far an optimizer has come that steps inside the backward pass of a DDP."""

    def __init__(self, world_size):
        self.status = _OverlapStatus.UNINITIALIZED
        self.shard_buckets = False
        self.params_per_bucket = []
        self.params_per_rank = [[] for _ in range(world_size)]
        self.assigned_ranks_per_bucket = []
        self.num_bucket_assignments = 0
        self.total_size = None


class ZeroRedundancyOptimizer(torch.optim.Optimizer, Joinable):
    """As ``torch.distributed.optim.ZeroRedundancyOptimizer``: wraps an optimizer class and shards
    its states over the ranks of a process group. Each rank updates the parameters that it owns, and
    brings the new values to the others.

    ``torch.optim`` classes that the library has kernels of (SGD, Adam, AdamW, Adamax, Adadelta,
    Adagrad, RMSprop, Rprop, NAdam, RAdam), with parameters of float32 or float64 on the CPU, run in
    these; any other class, also one derived from them, runs as it is. Values go through memory that
    the processes of one machine share.

    Collective, as are its steps, :meth:`add_param_group`, :meth:`load_state_dict` and
    :meth:`consolidate_state_dict`: all ranks make the same calls in the same order.

    Args:
        params: an iterable of tensors, or of dictionaries with parameter groups; dense, of one type
            and one kind of device.
        optimizer_class: of the local optimizer.
        process_group: None: the world.
        parameters_as_bucket_view: values of the parameters that a rank owns move into one piece of
            memory; ``param.data`` of each becomes a view of it.
        overlap_with_ddp: steps are made inside the backward pass of a DDP with a hook of
            :func:`hook_with_zero_step` or its sister. As in PyTorch the first passes (two; three of
            a static graph) reduce gradients only.
        defaults: options of the local optimizer.

    Attributes:
        optim: the local optimizer, of `optimizer_class`: its ``param_groups`` hold what this rank
            owns, its ``state`` is the state here.

    Raises:
        TypeError: params is one tensor, or not iterable, or holds something else.
        ValueError: no parameters; sparse ones; several types; a functional class without overlap.
        RuntimeError: this process is not in the process group.
    """

    functional_optim_map = functional_optim_map

    def __init__(self, params, optimizer_class, process_group=None,
                 parameters_as_bucket_view=False, overlap_with_ddp=False, **defaults):
        self.initialized = False
        params, all_params = _verified(params)
        Joinable.__init__(self)
        torch.optim.Optimizer.__init__(self, params, defaults)
        self._all_params = all_params
        self._is_trainable_mask = self._get_is_trainable_mask()
        self._default_device = all_params[0].device
        self.process_group = process_group if process_group is not None else dist.group.WORLD
        self.world_size = dist.get_world_size(self.process_group)
        self.rank = dist.get_rank(self.process_group)
        self.global_rank = dist.get_rank()
        self._overlap_with_ddp = overlap_with_ddp
        self._optim_defaults = defaults
        self._optim_constructor = _constructor(optimizer_class, overlap_with_ddp)
        if overlap_with_ddp and parameters_as_bucket_view:
            logger.warning("parameters_as_bucket_view is ignored together with overlap_with_ddp: "
                           "values stay where they are")
            parameters_as_bucket_view = False
        self.parameters_as_bucket_view = parameters_as_bucket_view
        self._group = groups.group(self.process_group)
        self._shards, self._buckets = [], []
        self._load = [0] * self.world_size  # elements that each rank owns
        self._owners = {}                   # by id of the parameter
        self._steps = {}                    # this rank's scalars of each parameter, by name
        self._all_state_dicts = []
        if overlap_with_ddp:
            self._overlap_info = _OverlapInfo(self.world_size)
            self.optim = None
        else:
            self._assign(self.param_groups)
            self._make_local(self.param_groups)
            self._add_shard(self.param_groups)
            self._sync_param_groups(self.optim.param_groups, self.param_groups)
        self.initialized = True

    # ---- who owns what ----

    def _assign(self, param_groups):
        """The largest parameter of a group first, each to the rank that has least so far."""
        for group in param_groups:
            for param in sorted(group["params"], key=lambda one: one.numel(), reverse=True):
                rank = self._load.index(min(self._load))
                self._load[rank] += param.numel()
                self._owners[id(param)] = rank

    def _partition_parameters(self, params_per_rank=None):
        """For each rank a list of parameter groups with what it owns."""
        if params_per_rank is not None:
            raise RuntimeError("owners are this optimizer's to choose")
        return [self._part_of(rank, self.param_groups) for rank in range(self.world_size)]

    def _part_of(self, rank, param_groups):
        found = []
        for group in param_groups:
            params = sorted(group["params"], key=lambda one: one.numel(), reverse=True)
            found.append({**group, "params": [param for param in params
                                              if self._owners[id(param)] == rank]})
        return found

    @property
    def _param_to_rank(self):
        return {param: self._owners[id(param)]
                for group in self.param_groups for param in group["params"]}

    @property
    def _index_to_param(self):
        return [param for group in self.param_groups for param in group["params"]]

    @property
    def _param_to_index(self):
        return {param: index for index, param in enumerate(self._index_to_param)}

    def _make_local(self, param_groups):
        self.optim = self._optim_constructor(self._part_of(self.rank, param_groups),
                                             **self._optim_defaults)

    def _add_shard(self, param_groups):
        """A shard of these groups, whose parameters have owners."""
        params = [param for group in param_groups for param in group["params"]]
        if not params:
            return
        if self.parameters_as_bucket_view:
            self._build_param_buckets(params)
        first = len(self.param_groups) - len(param_groups)
        local = self.optim.param_groups[first:first + len(param_groups)]
        # All ranks have options alike, and only the local groups have the class's defaults.
        given = [{**one, "params": group["params"]} for one, group in zip(local, param_groups)]
        rule = rules.rule_of(self._optim_constructor, given, params)
        if self._shards and (rule is None) != (self._shards[0].rule is None):
            raise ValueError("the options of the added parameter group are such as the library's "
                             "kernels do not have, and the other groups run in these")
        shard = Shard(self._group, params, [self._owners[id(param)] for param in params], rule,
                      given, self._update)
        shard.first_group = first
        shard.group_of = {id(param): first + index for index, group in enumerate(param_groups)
                          for param in group["params"]}
        self._shards.append(shard)
        if rule is not None:
            shard.layouts = [rules.layout_of(self._optim_constructor, one) for one in given]
            for place in shard.own:
                if params[place] in self.optim.state:  # a class with state from the beginning
                    self._show_state(shard, place)

    def _build_param_buckets(self, params):
        """Move values: for each device and rank one flat tensor with what the rank owns."""
        devices = list(dict.fromkeys(param.device for param in params))
        for device in devices:
            cells = []
            for rank in range(self.world_size):
                mine = [param for param in params
                        if param.device == device and self._owners[id(param)] == rank]
                mine.sort(key=lambda one: one.numel(), reverse=True)
                bucket = torch.empty(sum(param.numel() for param in mine), device=device,
                                     dtype=params[0].dtype)
                offset = 0
                for param in mine:
                    piece = bucket[offset:offset + param.numel()].view(param.shape)
                    piece.copy_(param.data)
                    param.data = piece
                    offset += param.numel()
                cells.append(bucket)
            self._buckets.append(cells)

    # ---- parameter groups ----

    def add_param_group(self, param_group):
        """Add a parameter group. Collective.

        Raises:
            RuntimeError: with overlap. ValueError: a parameter is in a group already, is sparse, or
                of another type than the others.
        """
        if not self.initialized:
            super().add_param_group(param_group)
            return
        if self._overlap_with_ddp:
            raise RuntimeError("ZeroRedundancyOptimizer with overlap_with_ddp takes no further "
                               "parameter groups")
        params = param_group["params"] if isinstance(param_group, dict) else []
        params = [params] if torch.is_tensor(params) else list(params)
        if isinstance(param_group, dict):
            param_group = {**param_group, "params": params}
        if params and all(torch.is_tensor(param) for param in params):
            _verify_types(self._all_params[:1] + params)
        super().add_param_group(param_group)
        added = self.param_groups[-1:]
        self._all_params.extend(params)
        self._is_trainable_mask = self._get_is_trainable_mask()
        self._assign(added)
        self.optim.add_param_group(self._part_of(self.rank, added)[0])
        self._add_shard(added)
        self._sync_param_groups(self.optim.param_groups, self.param_groups)

    @staticmethod
    def _sync_param_groups(source, destination):
        """Copy every option but the parameters, group by group."""
        assert len(source) == len(destination), "parameter groups differ in number"
        for one, other in zip(source, destination):
            for name, value in one.items():
                if name != "params":
                    other[name] = value

    def _get_is_trainable_mask(self):
        return [param.requires_grad for param in self._all_params]

    # ---- the step ----

    def step(self, closure=None, **kwargs):
        """Perform one step on all ranks. Collective.

        Args:
            closure: clears the gradients, computes the loss and returns it.
            kwargs: handed to the local optimizer's ``step()``, where the class has its own.

        Returns:
            What the local optimizer's step returns: the closure's loss, or None.
        """
        if self._overlap_with_ddp:
            logger.warning("step() does nothing with overlap_with_ddp: steps are in the backward "
                           "pass")
            return None
        return self._step(closure, kwargs)

    def _step(self, closure=None, kwargs=None, joined=False):
        if self._overlap_with_ddp:
            return None
        if not joined:
            Join.notify_join_context(self)
        if getattr(self._join_config, "enable", False):
            self._share_gradients(joined)
        mask = self._get_is_trainable_mask()
        if mask != self._is_trainable_mask:
            logger.warning("some parameters were frozen or unfrozen since the last step")
            self._is_trainable_mask = mask
        self._sync_param_groups(self.param_groups, self.optim.param_groups)
        results = []
        self._local = (closure, kwargs or {}, results)
        kernels = any(shard.rule is not None for shard in self._shards)

        def begin():  # where what is raised ends the step on all ranks
            for name in kwargs or ():
                raise TypeError(f"{self._optim_constructor.__name__}.step() got an unexpected "
                                f"keyword argument '{name}'")
            if closure is not None:
                with torch.enable_grad():
                    results.append(closure())
            self._send_hypers()
        for place, shard in enumerate(self._shards):
            used = shard.step(begin=begin if kernels and place == 0 else None)
            if shard.rule is not None:
                self._count_steps(shard, used)
        self._local = None
        self._sync_param_groups(self.optim.param_groups, self.param_groups)
        return results[0] if results else None

    def _update(self):
        """The step of a local optimizer that has no kernels, once for all shards."""
        if self._local is None:
            return
        (closure, kwargs, results), self._local = self._local, None
        if closure is not None:
            kwargs = {"closure": closure, **kwargs}
        with torch.enable_grad():
            results.append(self.optim.step(**kwargs))

    def _send_hypers(self):
        for shard in self._shards:
            if shard.rule is None:
                continue
            first = shard.first_group
            mine = self.optim.param_groups[first:first + len(shard.layouts)]
            if shard.send_hypers(mine):
                shard.layouts = [rules.layout_of(self._optim_constructor, one) for one in mine]
                for place in shard.own:
                    if shard.params[place] in self.optim.state:
                        self._show_state(shard, place)

    def _show_state(self, shard, place, step=None):
        """Let the local optimizer's state of a parameter be the library's."""
        param = shard.params[place]
        layout = shard.layouts[shard.group_of[id(param)] - shard.first_group]
        before = self.optim.state.get(param, {})
        shown = {}
        for name, kind in layout.items():
            if kind == "element":
                shown[name] = shard.slot(place, name)
            elif kind == "scalar":
                if not torch.is_tensor(shown.get(name, before.get(name))):
                    before = {**before, name: torch.zeros(())}
                shown[name] = before[name]
                shown[name].fill_(shard.scalar(place, name))
            elif name == "step":
                shown[name] = int(shard.scalar(place, "step"))
            else:
                shown[name] = kind
        self.optim.state[param] = shown

    def _count_steps(self, shard, used):
        """After a step: this rank's state shows how far each parameter is."""
        state, params, steps, fresh = self.optim.state, shard.params, [], []
        for place in used:
            param = params[place]
            values = state.get(param)
            if not values or shard.rule == "nadam":
                fresh.append(place)
                continue
            step = values.get("step")
            if step is None:
                continue
            if torch.is_tensor(step):
                steps.append(step)
            else:
                values["step"] = step + 1
        if steps:
            torch._foreach_add_(steps, 1)
        for place in fresh:
            if shard.layouts[shard.group_of[id(params[place])] - shard.first_group]:
                self._show_state(shard, place)

    # ---- uneven inputs ----

    def join_hook(self, **kwargs):
        """What a rank does in a :class:`torch.distributed.algorithms.join.Join` whose inputs are
        used up: the others' steps, with gradients from a rank that has inputs."""
        return _JoinHook(self)

    @property
    def join_device(self):
        return self._default_device

    @property
    def join_process_group(self):
        return self.process_group

    def _share_gradients(self, joined):
        """In a join: what joined ranks own is updated with the gradients of a rank that is not, as
        theirs are those of their last inputs."""
        flags = array.array("B", [0] * self.world_size)
        self._group.all_gather(array.array("B", [joined]), flags)
        if not any(flags) or all(flags):
            return
        source = list(flags).index(0)
        params = [param for param in self._all_params if flags[self._owners[id(param)]]]
        there = array.array("B", [param.grad is not None for param in params] or [0])
        self._group.broadcast(there, source)
        for param, exists in zip(params, there):
            takes = joined and self._owners[id(param)] == self.rank
            if not exists:
                if takes:
                    param.grad = None
                continue
            gradient = param.grad
            buffer = (gradient.detach().to_dense() if gradient is not None and gradient.is_sparse
                      else gradient)
            buffer = (torch.zeros_like(param, device="cpu") if buffer is None
                      else buffer.detach().to("cpu", copy=True)).contiguous()
            dtype, parts = rules.kind_of(buffer.dtype)
            self._group.broadcast(_arrays.View(buffer.data_ptr(), dtype,
                                               (buffer.numel() * parts,), buffer), source)
            if takes:
                param.grad = buffer.to(param.device)

    # ---- state ----

    def consolidate_state_dict(self, to=0):
        """Bring the states of all ranks to rank `to` of the process group, as they are now, in
        memory of the CPU. Beside them a rank needs 16 MiB. Collective.

        Raises:
            ValueError: `to` is no rank. RuntimeError: with overlap, before the first step.
        """
        self._check_overlap_initialized()
        if not 0 <= to < self.world_size:
            raise ValueError(f"there is no rank {to} in a process group of {self.world_size}")
        self._sync_param_groups(self.param_groups, self.optim.param_groups)
        self._all_state_dicts = []
        for source in range(self.world_size):
            tensors = []
            mine = self.optim.state_dict() if source == self.rank else None
            packed = pickle.dumps(_packed(mine, tensors)) if mine is not None else b""
            found = pickle.loads(self._group.broadcast_bytes(packed, source))
            for place, (dtype, shape) in enumerate(found["tensors"]):
                out = torch.empty(shape, dtype=dtype) if to == self.rank else None
                self._bring(tensors[place] if tensors else None, out, dtype, shape, source, to)
                if out is not None:
                    found["tensors"][place] = out
            if to == self.rank:
                self._all_state_dicts.append(_unpacked(found["values"], found["tensors"]))

    def _bring(self, tensor, out, dtype, shape, source, to):
        """One tensor's bytes from `source` to `to`, a piece at a time."""
        PIECE = 16 << 20
        count = torch.Size(shape).numel() * torch.empty(0, dtype=dtype).element_size()
        if tensor is not None:
            tensor = tensor.detach().to("cpu").contiguous()
        if source == to:
            if out is not None:
                out.copy_(tensor)
            return
        for begin in range(0, count, PIECE):
            counts = (ctypes.c_int64 * self.world_size)()
            counts[source] = min(PIECE, count - begin)
            call(lib.cz_gather_v(self._group._ptr,
                                 tensor.data_ptr() + begin if tensor is not None else None,
                                 out.data_ptr() + begin if out is not None else None,
                                 counts, c.CZ_U8, to, None))

    def state_dict(self):
        """The state that was consolidated last, on the rank that it was consolidated on, in the
        form of an unsharded optimizer, which either can load.

        Raises:
            RuntimeError: it was not consolidated on this rank.
        """
        self._check_overlap_initialized()
        if not self._all_state_dicts:
            raise RuntimeError(
                f"Optimizer state has not been consolidated on this rank: rank {self.rank} has "
                "none. Please call `consolidate_state_dict(to=%d)` on all ranks beforehand if you "
                "meant to save the global state." % self.rank)
        found = super().state_dict()
        number = {id(param): index for index, param in enumerate(self._index_to_param)}
        state = {}
        for rank, values in enumerate(self._all_state_dicts):
            for own, group in zip(self._part_of(rank, self.param_groups), values["param_groups"]):
                assert len(own["params"]) == len(group["params"]), "a shard has other parameters"
                for param, local in zip(own["params"], group["params"]):
                    if local in values["state"]:
                        state[number[id(param)]] = values["state"][local]
        found["state"] = dict(sorted(state.items()))
        return found

    def load_state_dict(self, state_dict):
        """Take a state from :meth:`state_dict`, of any number of ranks, or of an unsharded
        optimizer; it is left as it is. A parameter that it has no state of has none afterwards.
        Each rank takes what it owns.

        Raises:
            ValueError: other numbers of groups or parameters; a state that the library's rule
                cannot have.
            IndexError: state of a parameter that is not there. Nothing was changed.
        """
        self._check_overlap_initialized()
        params = self._index_to_param
        for index in state_dict["state"]:
            if not 0 <= index < len(params):
                raise IndexError(f"the state has a parameter {index}; there are {len(params)}")
        super().load_state_dict({"state": {}, "param_groups": state_dict["param_groups"]})
        self._sync_param_groups(self.param_groups, self.optim.param_groups)
        number = {id(param): index for index, param in enumerate(params)}
        for shard in self._shards:
            if shard.rule is not None:
                self._load_kernels(shard, state_dict["state"], number)
        mine = {id(param): param for group in self.optim.param_groups for param in group["params"]
                if not any(shard.rule is not None and id(param) in shard.group_of
                           for shard in self._shards)}
        for key, param in mine.items():
            self.optim.state.pop(param, None)
            if number[key] in state_dict["state"]:
                self.optim.state[param] = _moved(state_dict["state"][number[key]], param)

    def _load_kernels(self, shard, state, number):
        self._send_hypers()
        given = {}
        for place in shard.own:
            param = shard.params[place]
            values = state.get(number[id(param)])
            layout = shard.layouts[shard.group_of[id(param)] - shard.first_group]
            if not values or not any(kind == "element" for kind in layout.values()):
                continue
            taken = {"step": 1}
            for name, kind in layout.items():
                value = values.get(name)
                if name == "step":
                    taken["step"] = int(value)
                elif value is not None and kind == "element":
                    value = value.detach().to("cpu", param.dtype).contiguous()
                    taken[name] = _arrays.View(value.data_ptr(), rules.DTYPES[value.dtype],
                                               (value.numel(),), value)
                elif value is not None and kind == "scalar":
                    taken[name] = float(value)
            if len(taken) > 1 or taken["step"] != 1:
                given[place] = taken
        shard.load(given)
        for place in shard.own:
            param = shard.params[place]
            self.optim.state.pop(param, None)
            if place in given:
                self._show_state(shard, place)

    def _check_overlap_initialized(self):
        if self._overlap_with_ddp and \
                self._overlap_info.status != _OverlapStatus.INITIALIZED:
            raise RuntimeError("this method is not to be called before the first step: with "
                               "overlap_with_ddp the first passes of the DDP make none")


def _constructor(optimizer_class, overlap):
    functional = {one: key for key, one in functional_optim_map.items() if one is not None}
    if not overlap:
        if optimizer_class in functional:
            raise ValueError(f"{optimizer_class.__name__} is functional, which is for "
                             "overlap_with_ddp=True")
        return optimizer_class
    if optimizer_class in functional:
        return functional[optimizer_class]
    if optimizer_class not in functional_optim_map:
        raise ValueError(f"{getattr(optimizer_class, '__name__', optimizer_class)} does not go "
                         "with overlap_with_ddp=True; those that do are "
                         f"{', '.join(one.__name__ for one in functional_optim_map)}")
    return optimizer_class


def _verified(params):
    """The argument as lists, and all parameters in order."""
    if torch.is_tensor(params):
        raise TypeError("`params` argument should be an iterable of Tensors or of dictionaries "
                        f"with parameter groups, but is a {params.type()}")
    try:
        params = list(params)
    except TypeError:
        raise TypeError("`params` argument should be an iterable of Tensors or of dictionaries, "
                        f"but is a {type(params).__name__}") from None
    if not params:
        raise ValueError("ZeroRedundancyOptimizer got an empty parameter list")
    if all(torch.is_tensor(one) for one in params):
        all_params = params
    elif all(isinstance(one, dict) for one in params):
        taken, all_params = [], []
        for one in params:
            if "params" not in one:
                raise ValueError("Each parameter group passed-in via `params` must have a 'params' "
                                 "key mapping to the parameters in the group")
            if isinstance(one["params"], set):
                raise TypeError("parameters have to have an order, and a set has none")
            mine = [one["params"]] if torch.is_tensor(one["params"]) else list(one["params"])
            taken.append({**one, "params": mine})
            all_params.extend(mine)
        params = taken
    else:
        raise TypeError("`params` argument should be an iterable of Tensors or of dictionaries, "
                        "not of both and of nothing else")
    if not all_params:
        raise ValueError("ZeroRedundancyOptimizer got parameter groups without parameters")
    _verify_types(all_params)
    return params, list(all_params)


def _verify_types(params):
    first = params[0]
    for param in params:
        if param.layout is not torch.strided:
            raise ValueError("ZeroRedundancyOptimizer only supports dense parameters, and one is "
                             f"{param.layout}")
        if (param.device.type, param.dtype) != (first.device.type, first.dtype):
            raise ValueError("ZeroRedundancyOptimizer only supports parameters of one type, and "
                             f"there are {first.type()} and {param.type()}")


def _packed(values, tensors):
    """A state dictionary with numbers in place of tensors, which are put into a list."""
    def walk(value):
        if torch.is_tensor(value):
            tensors.append(value)
            return _Place(len(tensors) - 1)
        if isinstance(value, dict):
            return {key: walk(one) for key, one in value.items()}
        if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
            return type(value)(walk(one) for one in value)
        return value
    walked = walk(values)
    return {"values": walked, "tensors": [(one.dtype, tuple(one.shape)) for one in tensors]}


def _unpacked(value, tensors):
    if isinstance(value, _Place):
        return tensors[value.number]
    if isinstance(value, dict):
        return {key: _unpacked(one, tensors) for key, one in value.items()}
    if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
        return type(value)(_unpacked(one, tensors) for one in value)
    return value


class _Place:
    def __init__(self, number):
        self.number = number


def _moved(value, param):
    """A copy of a parameter's state, on its device and of its type, numbers of steps on the CPU."""
    if torch.is_tensor(value):
        if value.dim() == 0:
            return value.detach().clone().to("cpu")
        dtype = param.dtype if value.is_floating_point() and param.is_floating_point() \
            else value.dtype
        return value.detach().to(param.device, dtype, copy=True)
    if isinstance(value, dict):
        return {key: _moved(one, param) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_moved(one, param) for one in value)
    return value


_fill_map()
