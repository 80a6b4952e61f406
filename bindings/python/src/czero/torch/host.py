# SPDX-License-Identifier: MIT
"""An optimizer whose state is in the host's memory, for parameters on a device or on the CPU."""
import contextlib
import ctypes
import queue
import threading
import warnings
import weakref

import torch

from .. import _arrays
from .. import _declarations as c
from .._library import Handle, Thrown, call, called, lib
from ..group import Group
from ..model import Model
from ..optim import Optim
from . import groups, rules, transfers
from .shard import Shard

_CLASSES = {rule: one for one, rule in rules.RULES.items()}
_DTYPES = {torch.float32: "f32", torch.float64: "f64", torch.bfloat16: "bf16",
           torch.float16: "f16"}
_TORCH = {name: dtype for dtype, name in _DTYPES.items()}


class HostOptimizer(torch.optim.Optimizer):
    """Masters and moments in f32 in the host's memory, updated there by the library's kernels while
    the backward pass goes on: a gradient goes to the host as soon as it is accumulated, threads of
    the library update that parameter, and its new value goes back. :meth:`step` waits for what is
    left.

    Clipping is exact: updates are made before the norm of all gradients is known, and where it
    exceeds `max_norm` what they changed is put back and updated again, with the bits of an
    optimizer that clips after the backward pass.

    Args:
        params: as for any optimizer of PyTorch's; float32, bfloat16, float16 or float64, on the CPU
            (where they are updated in place) or a device, ordinary tensors or FSDP2's DTensors.
        rule: a class of ``torch.optim`` (SGD, Adam, AdamW, …), or the name of one of
            :func:`czero.rules`.
        max_norm: above which the L2 norm of all gradients is clipped to it; infinity: only look;
            None: there is no look at it.
        skip_nonfinite: no update where a gradient is infinite or NaN.
        group: a process group of PyTorch's, or a :class:`czero.Group`: the norm is over its ranks.
            Each has parameters, or parts of them, that no other has (FSDP); or with `shard` all
            have the same, and the same gradients (DDP). Construction and steps are collective
            then, where they look at the norm or `shard`.
        shard: each parameter has an owner among the ranks, which keeps its state, updates it, and
            gives its value to the others.
        overlap: updates begin inside the backward pass; False: in :meth:`step`. None: unless
            `shard`, for gradients arrive before DDP has reduced them.
        free_gradients: of parameters on a device: ``grad`` becomes None once it is on the host.
        threads: that update; 0: CZERO_THREADS, else the cores that this rank has to itself.
        undo_bytes: so much memory for what may have to be put back; what has no room is updated in
            :meth:`step`. 0: as much as it takes: of AdamW 14 bytes for an element of bfloat16.
        master, state_dtype, seed: as for :class:`czero.Optim`.
        defaults: options, such as ``lr``.

    Attributes:
        norm: of the last step's gradients, before they were clipped (NaN without `max_norm`).
        skipped: was the last step skipped?
    """

    def __init__(self, params, rule="adamw", *, max_norm=None, skip_nonfinite=False, group=None,
                 shard=False, overlap=None, free_gradients=False, threads=0, undo_bytes=0,
                 master=None, state_dtype=None, seed=0, **defaults):
        if isinstance(rule, type):
            if rule not in rules.RULES:
                raise ValueError(f"{rule.__name__} has no kernels here; there are "
                                 f"{', '.join(one.__name__ for one in rules.RULES)}")
            rule = rules.RULES[rule]
        if shard and group is None:
            raise ValueError("shard wants a group")
        if rule in _CLASSES:
            stand_in = torch.zeros(1, requires_grad=True)
            defaults = _CLASSES[rule]([stand_in], **defaults).defaults
        self.max_norm, self.skip_nonfinite = max_norm, skip_nonfinite
        self.norm, self.skipped = float("nan"), False
        self._rule, self._threads, self._undo_bytes = rule, threads, undo_bytes
        self._types = {"master": master, "state_dtype": state_dtype, "seed": seed}
        self._undo = max_norm is not None or skip_nonfinite
        self._free = free_gradients
        self._overlaps = not shard if overlap is None else overlap
        self._lock, self._thrown = threading.RLock(), Thrown()
        self._paused = self._warned = self._built = False
        self._hooks = []
        super().__init__(params, defaults)
        if group is not None and not isinstance(group, Group):
            group = groups.group(group)
        self._group, self._shard = group, shard
        self._build()
        self._built = True

    # ---- construction ----

    def _build(self):
        """A model of what this rank updates, and an optimizer that steps parameter by parameter."""
        everything = [param for group in self.param_groups for param in group["params"]]
        self._check(everything)
        self._deal(everything)
        own = [param for param in everything if self._is_mine(param)]
        self._params, self._place = own, {id(param): place for place, param in enumerate(own)}
        self._ways = [self._way(param) for param in own]
        self._homes = [self._home(param, way) for param, way in zip(own, self._ways)]
        self._versions = [param._version for param in own]
        self._trained = [param.requires_grad for param in own]
        model = Model()
        for place, home in enumerate(self._homes):
            model.add(str(place), _view(home))
            model.set_requires_grad(place, self._trained[place])
        if not own:  # the others want to hear from this rank
            model.add("nothing", _arrays.View(0, _DTYPES[everything[0].dtype], (0,), None))
        self._sent, listed = [], []
        self._indices = {}
        for index, group in enumerate(self.param_groups):
            self._sent.append(self._hypers(group))
            mine = [self._place[id(p)] for p in group["params"] if id(p) in self._place]
            if mine or (not own and index == 0):
                self._indices[index] = len(listed)
                listed.append({"params": mine or ["nothing"], **self._sent[-1]})
        threads = self._threads or (self._group.local_cores() if self._group else 0)
        self._optim = Optim(model, self._rule, groups=listed, threads=threads, **self._types,
                            **self._sent[0])
        for index, number in self._indices.items():  # what a rule has that nobody gave
            for name, value in self._optim.param_groups[number].items():
                if self._rule not in _CLASSES:
                    self.param_groups[index].setdefault(name, value)
            self._sent[index] = self._hypers(self.param_groups[index])
        self._slots = _slots_of(self._optim)
        self._steps = _Steps(self)
        self._opened = self._late = self._stale = False
        self._marked, self._addresses, self._kept = set(), {}, {}
        self._make_sender(everything)
        self._hook_up()

    def _check(self, params):
        for param in params:
            if param.dtype not in _DTYPES or param.layout is not torch.strided:
                raise ValueError(f"HostOptimizer takes dense parameters of {', '.join(_TORCH)}, "
                                 f"not {param.dtype}, {param.layout}")
            if hasattr(param, "to_local") and self._undo and self._group is None:
                raise ValueError("parameters are DTensors, of which each rank has a part: say over "
                                 "which group the norm is")

    def _deal(self, params):
        """Owners, of what has none yet: the rank that has least so far."""
        if not self._shard:
            return
        self._owners = getattr(self, "_owners", {})
        load = [0] * self._group.size
        for param in params:
            owner = self._owners.setdefault(id(param), load.index(min(load)))
            load[owner] += param.numel()

    def _is_mine(self, param):
        return not self._shard or self._owners[id(param)] == self._group.rank

    def _way(self, param):
        """Between a parameter and the host; None: it is there, and is updated in place."""
        local = _local(param)
        way = transfers.between(local.device)
        if way is None and not local.is_contiguous():
            return transfers.Transfers()
        if way is not None:
            for one in getattr(self, "_ways", ()):  # one for each device
                if getattr(one, "device", None) == local.device:
                    return one
        return way

    def _home(self, param, way):
        if way is None:
            return _local(param)
        home = way.buffer(_local(param))
        home.copy_(_local(param))
        return home

    def _hypers(self, group):
        if self._rule in _CLASSES:
            return rules.hypers_of(self._rule, group)
        return {name: value for name, value in group.items()
                if name != "params" and isinstance(value, (int, float))}

    def _hook_up(self):
        for hook in self._hooks:
            hook.remove()
        self._hooks, self._accumulators = [], []
        if not self._overlaps:
            return
        arrived = weakref.WeakMethod(self._arrived)
        for param in self._params:
            if not param.requires_grad:
                continue
            if hasattr(param, "register_post_accumulate_grad_hook"):
                hook = param.register_post_accumulate_grad_hook(_caller(arrived, param))
            else:  # PyTorch before 2.1
                with torch.enable_grad():
                    accumulator = param.view_as(param).grad_fn.next_functions[0][0]
                self._accumulators.append(accumulator)
                hook = accumulator.register_hook(_caller(arrived, param))
            self._hooks.append(hook)

    def _make_sender(self, everything):
        """Who sends values from their owners, in `shard`."""
        self._sender = None
        if self._shard:
            values = [self._homes[self._place[id(param)]] if self._is_mine(param) else
                      param.detach() for param in everything]
            self._sender = Shard(self._group, values, [self._owners[id(p)] for p in everything],
                                 None, update=self._sent_already)

    def _sent_already(self):
        """The sender's update: it was made before."""

    # ---- a step ----

    @contextlib.contextmanager
    def accumulate(self):
        """For backward passes but the last one of a step: gradients add up where they are."""
        before, self._paused = self._paused, True
        try:
            yield
        finally:
            self._paused = before

    def _begin(self):
        """Before the first gradient of a step: what has changed since the last one."""
        if self._opened:
            return
        for place, param in enumerate(self._params):
            if param.requires_grad != self._trained[place]:
                self._optim.model.set_requires_grad(place, param.requires_grad)
                self._trained[place] = param.requires_grad
            self._refresh(place, param)
        self._send_hypers()
        self._open()

    def _open(self):
        call(lib.cz_in_backward_begin(self._steps._ptr, None))
        self._opened = True

    def _refresh(self, place, param):
        """Values that somebody else has written, or put elsewhere."""
        way, home = self._ways[place], self._homes[place]
        if way is None:
            local = _local(param)
            if local.data_ptr() == home.data_ptr():
                return
            self._ways[place] = way = transfers.Transfers()
        elif param._version == self._versions[place]:
            return
        home.copy_(_local(param))
        self._versions[place] = param._version

    def _send_hypers(self):
        """Returns whether something has changed."""
        changed = False
        for index, group in enumerate(self.param_groups):
            now = self._hypers(group)
            if now == self._sent[index]:
                continue
            changed = True
            if index in self._indices:
                here = self._optim.param_groups[self._indices[index]]
                for name, value in now.items():
                    if value != self._sent[index].get(name):
                        here[name] = value
                        self._stale = self._stale or name != "lr"
            self._sent[index] = now
        return changed

    def _arrived(self, param):
        """A hook: a gradient is accumulated."""
        if self._paused:
            return
        with self._lock, torch.no_grad():
            if self._late:
                return
            self._begin()
            place = self._place[id(param)]
            if place in self._marked:
                self._come_again()
            else:
                self._mark(place, param)

    def _come_again(self):
        """A second backward pass in a step: what the first one made is not what the step is."""
        if not self._undo or self._free:
            raise RuntimeError("a second backward pass before step(): the first was taken for all "
                               "there is. Passes but the last belong in `with "
                               "optimizer.accumulate():`")
        if not self._warned:
            warnings.warn("several backward passes in a step: its updates begin in step(). With "
                          "those but the last in `with optimizer.accumulate():` they begin in the "
                          "backward pass", stacklevel=2)
        self._warned = self._late = True
        self._forget()
        self._open()  # which takes back

    def _mark(self, place, param):
        gradient = _local(param.grad).detach()
        home, way = self._homes[place], self._ways[place]
        if gradient.layout is not torch.strided:
            gradient = gradient.to_dense()
        if gradient.dtype != home.dtype:
            gradient = gradient.to(home.dtype)
        event = None
        if gradient.device.type != "cpu":
            there = self._steps.gradient_buffer(place, way)
            event = way.to_host(there, gradient)
            if self._free:
                param.grad = None
            gradient = there
        gradient = gradient.contiguous()
        self._marked.add(place)
        self._kept[place] = gradient
        self._addresses[place] = gradient.data_ptr() or None
        self._steps.mark(place, self._addresses[place], event)

    def step(self, closure=None):
        """Update all parameters that have a gradient; what hooks have begun is finished. With a
        `group` collective, where it looks at the norm, and with `shard`.

        Args:
            closure: as for any optimizer of PyTorch's.

        Raises:
            RuntimeError: a rate or another option was changed after gradients had arrived, without
                `max_norm` (change it before the backward pass, or after the step).
            czero.Error: another rank failed, or ranks differ in options. With `max_norm`
                everything is as it was before the gradients arrived.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        try:
            with self._lock, torch.no_grad():
                self._finish()
        finally:
            self._opened = self._late = False
            self._forget()
        return loss

    def _finish(self):
        self._begin()
        self._take_options()
        for place, param in enumerate(self._params):
            if place not in self._marked and param.grad is not None and self._trained[place]:
                self._mark(place, param)
        marked = sorted(self._marked)
        self._steps.drain()
        options, result = c.cz_step_options(), c.cz_step_result()
        if self._undo:
            options.max_norm = float("inf") if self.max_norm is None else self.max_norm
            options.skip_nonfinite = self.skip_nonfinite
        call(lib.cz_in_backward_end(self._steps._ptr, options, result), self._thrown)
        if (failure := self._thrown.take()) is not None:
            raise failure
        self.norm, self.skipped = result.norm, bool(result.skipped)
        if not self.skipped:
            self._take_in(marked)

    def _take_options(self):
        """Of a step whose first gradient came before they were changed."""
        if not self._marked:
            self._send_hypers()
            return
        self._steps.drain()
        if all(self._hypers(group) == sent for group, sent in zip(self.param_groups, self._sent)):
            return
        if not self._undo:
            raise RuntimeError("options of the optimizer were changed between the backward pass, "
                               "which has updated parameters, and step()")
        self._open()  # takes back
        self._send_hypers()
        self._open()
        for place in sorted(self._marked):
            self._steps.mark(place, self._addresses[place], None)

    def _forget(self):
        self._marked.clear()
        self._addresses.clear()
        self._kept.clear()

    @torch.no_grad()
    def _take_in(self, marked):
        """A step was made: values go to where they are used, ``state`` shows how far it is."""
        for place in marked:
            way = self._ways[place]
            if way is not None and not way.early:
                way.to_device(_local(self._params[place]), self._homes[place])
        if self._sender is not None:
            self._sender.step()
        for way in {id(way): way for way in self._ways if way is not None}.values():
            way.finish()
        for place, param in enumerate(self._params):
            if self._ways[place] is not None:
                self._versions[place] = param._version
        self._show_state(marked)

    def zero_grad(self, set_to_none=True):
        """As of any optimizer of PyTorch's. Where gradients have arrived and no step was made:
        with `max_norm` that step is taken back; without, what is updated is updated."""
        with self._lock:
            if self._opened:
                self._steps.drain()
                if self._undo:
                    self._open()
                else:
                    call(lib.cz_in_backward_end(self._steps._ptr, None, None), self._thrown)
                    self._take_in(sorted(self._marked))
                self._opened = self._late = False
                self._forget()
        super().zero_grad(set_to_none=set_to_none)

    # ---- state ----

    def _show_state(self, places):
        """After steps: ``state`` of these parameters shows the library's memory, and how far they
        are."""
        steps, everywhere = [], range(len(self._params)) if self._stale else places
        afresh, self._stale = self._stale or self._scalars, False
        for place in everywhere:
            shown = self.state[self._params[place]]
            if "step" not in shown or afresh:
                self._show(place)
            else:
                steps.append(shown["step"])
        if steps:
            torch._foreach_add_(steps, 1)

    @property
    def _scalars(self):
        return [name for name, kind in self._slots if kind == c.CZ_SLOT_SCALAR and name != "step"]

    def _show(self, place):
        """All of a parameter's, if it has any."""
        param, shown = self._params[place], {}
        step = self._optim.scalar(place, "step")
        self.state.pop(param, None)
        if step == 0:
            return
        shown["step"] = torch.tensor(step, dtype=torch.float32)
        for name, kind in self._slots + [("master_param", c.CZ_SLOT_ELEMENT)]:
            if name == "step":
                continue
            if kind == c.CZ_SLOT_SCALAR:
                shown[name] = torch.tensor(self._optim.scalar(place, name), dtype=torch.float32)
            elif (value := self._slot(place, name)) is not None:
                shown[name] = value
        self.state[param] = shown

    def _slot(self, place, name):
        home = self._homes[place]
        if name == "master_param" and not self._has_masters:
            return None
        dtype = _TORCH[self._optim._dtype_of(place, name)]
        if home.numel() == 0:
            return torch.empty(home.shape, dtype=dtype)
        data, count = ctypes.c_void_p(), ctypes.c_int64()
        call(lib.cz_optim_state(self._optim._ptr, place, name.encode(), 0, ctypes.byref(data),
                                ctypes.byref(count)))
        if not data.value:
            return None
        return rules.tensor_at(data.value, torch.empty(home.shape, dtype=dtype, device="meta"),
                               self._optim)

    @property
    def _has_masters(self):
        return any(home.dtype in (torch.bfloat16, torch.float16) for home in self._homes) and \
            self._types["master"] != "none" and not self._optim._whole

    def load_state_dict(self, state_dict):
        """Take a state from :meth:`state_dict`, or from an optimizer of PyTorch's for the same
        rule: what it has in 16 bits is widened, masters that it has not begin as the values.

        Raises:
            ValueError: other numbers of groups or parameters, or a state that the rule cannot have.
                Nothing was changed but options of groups.
        """
        super().load_state_dict({"state": {}, "param_groups": state_dict["param_groups"]})
        everything = [param for group in self.param_groups for param in group["params"]]
        self._send_hypers()
        self._load({self._place[id(param)]: state_dict["state"][number]
                    for number, param in enumerate(everything)
                    if id(param) in self._place and number in state_dict["state"]})

    def _load(self, state):
        """Of places."""
        kinds = {**dict(self._slots), "master_param": c.CZ_SLOT_ELEMENT}
        taken, kept = {}, []
        for place, values in state.items():
            one = taken[str(place)] = {"step": 1}
            for name, value in values.items():
                if name == "step":
                    one["step"] = int(value)
                elif value is None or name not in kinds:
                    continue
                elif kinds[name] == c.CZ_SLOT_SCALAR:
                    one[name] = float(value)
                else:
                    value = _local(value).detach().to("cpu").contiguous()
                    kept.append(value)
                    one[name] = _view(value)
        name = self._optim.model.name
        self._optim.load_state_dict({
            "rule": self._rule, "state": taken,
            "param_groups": {str(number): {"params": [name(p) for p in one.params], **dict(one)}
                             for number, one in enumerate(self._optim.param_groups)}})
        self.state.clear()
        for place in range(len(self._params)):
            self._show(place)

    def add_param_group(self, param_group):
        """As of any optimizer of PyTorch's, between steps; with a `group` collective."""
        super().add_param_group(param_group)
        if not self._built:
            return
        before, state = self._optim, {id(param): one for param, one in self.state.items()}
        self._steps.close()
        self._build()
        self._load({self._place[key]: one for key, one in state.items() if key in self._place})
        before.close()

    def close(self):
        """End its threads, and free its state. The optimizer cannot be used any more."""
        for hook in self._hooks:
            hook.remove()
        self.state.clear()
        self._steps.close()
        self._optim.close()

    def __getstate__(self):
        raise TypeError("a HostOptimizer cannot be copied; its state_dict() can")


class _Steps(Handle):
    """The library's steps in parts, and a thread that waits for copies."""

    _destroy = "cz_in_backward_destroy"

    def __init__(self, host):
        options = c.cz_in_backward_options(background=1, undo=host._undo,
                                           undo_bytes=host._undo_bytes // 64 * 64)
        if host._undo_bytes and not options.undo_bytes:
            options.undo_bytes = 64
        group = host._group if host._undo else None
        if group is not None:
            options.group = group._ptr
        released = None
        if any(way is not None and way.early for way in host._ways):
            released = options.released = type(options.released)(called(_releaser(host)))
        optims, handle = (ctypes.c_void_p * 1)(host._optim._ptr.value), ctypes.c_void_p()
        call(lib.cz_in_backward_create(ctypes.byref(handle), optims, 1, options))
        self._own(handle, keep=released, group=group, needs=(host._optim,))
        self._buffers, self._waiting, self._thrown = {}, None, host._thrown

    def gradient_buffer(self, place, way):
        """Memory of the host for a gradient, the same in each step."""
        if place not in self._buffers:
            self._buffers[place] = way.buffer(self._needs[0].model._arrays[place][0].keep)
        return self._buffers[place]

    def mark(self, place, address, event):
        if event is None and self._waiting is None:
            call(lib.cz_in_backward_mark_ready(self._ptr, place, address))
            return
        if self._waiting is None:
            self._waiting = queue.SimpleQueue()
            thread = threading.Thread(target=_wait, args=(self._waiting, self._handle,
                                                          self._thrown), daemon=True)
            thread.start()
        self._waiting.put((place, address, event))

    def drain(self):
        """Until all that was marked is known to the library."""
        if self._waiting is not None:
            done = threading.Event()
            self._waiting.put(done)
            done.wait()
            if (failure := self._thrown.take()) is not None:
                raise failure

    def close(self):
        if self._waiting is not None:
            self._waiting.put(None)
        super().close()


def _wait(waiting, handle, thrown):
    """The thread: marks gradients whose copies are done, in their order."""
    while (one := waiting.get()) is not None:
        if isinstance(one, threading.Event):
            one.set()
            continue
        place, address, event = one
        try:
            if event is not None:
                event.synchronize()
            call(lib.cz_in_backward_mark_ready(handle, place, address))
        except BaseException as exception:
            thrown.keep(exception)


def _releaser(host):
    """Told by the library, on a thread of its: a parameter has its new value."""
    host = weakref.ref(host)

    def released(place, _gradient, _context):
        here = host()
        if here is None:
            return
        try:
            with torch.no_grad():
                here._ways[place].to_device(_local(here._params[place]), here._homes[place])
        except BaseException as exception:
            here._thrown.keep(exception)
    return released


def _caller(method, param):
    """A hook that keeps neither the optimizer nor the parameter alive."""
    param = weakref.ref(param)

    def hook(*_):
        call_it, here = method(), param()
        if call_it is not None and here is not None:
            call_it(here)
    return hook


def _local(tensor):
    """What this rank has of a tensor."""
    tensor = tensor.detach()
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def _view(tensor):
    return _arrays.View(tensor.data_ptr(), _DTYPES[tensor.dtype], tuple(tensor.shape), tensor)


def _slots_of(optim):
    """(name, kind) of the slots of its rule."""
    rule, found = optim._info().rule.contents, []
    at = ctypes.cast(rule.slots, ctypes.c_void_p).value
    for number in range(rule.slot_count):
        spec = c.cz_slot_spec.from_address(at + number * rule.slot_size)
        found.append((spec.name.decode(), spec.kind))
    return found
