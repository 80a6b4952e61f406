# SPDX-License-Identifier: MIT
"""Some parameters of an optimizer: each rank updates those that it owns, and gets the others."""
import array
import ctypes
import mmap
import weakref

import torch

from .. import _arrays
from .. import _declarations as c
from .._library import Handle, Thrown, call, lib
from ..errors import StateError, UnsupportedError
from ..model import Model
from ..optim import Optim, Zero
from . import rules


class _Shared(Handle):
    """Memory that all ranks of a group see, where they are on one machine."""

    _destroy = "cz_shared_destroy"

    def __init__(self, group, size):
        handle, data = ctypes.c_void_p(), ctypes.c_void_p()
        call(lib.cz_shared_create(ctypes.byref(handle), group._ptr, size, ctypes.byref(data)))
        self._own(handle)
        self.address = data.value


class Shard:
    """Parameters that step together, each with an owner: the groups of the construction, one that
    was added later, or a bucket of a data-parallel model.

    A step is one of the library's sharded optimizer, whose rule is Python's: when it begins, the
    owner updates its parameters, by the library's kernels (`rule`, an :class:`Optim` over them) or
    by `update()`; an exception there ends the step on all ranks. The library then brings the values
    to all ranks. On one machine that is memory which all of them see, and it says when values
    are there: owners copy into it, the others out of it. Elsewhere they travel.
    """

    def __init__(self, group, params, owners, rule, param_groups=(), update=None):
        self.params, self.owners, self.rule = params, owners, rule
        self.own = [place for place, owner in enumerate(owners) if owner == group.rank]
        self._group, self._thrown = group, Thrown()
        self._run = None
        self._table = self._rule(update)
        self._share(group)
        self.zero = Zero(group, self._model, self._table, partition="given",
                         owners=self._model_owners, gradients="reduced", threads=1)
        self._options = c.cz_step_options(allow_no_gradients=1)
        self._options.gradient_count = len(self._model_owners)
        self._options.gradients = self._somewhere(group.rank)
        self.local = None
        if rule is not None:
            self._make_local(param_groups)

    # ---- values ----

    def _share(self, group):
        """A model of what travels: a piece of shared memory for each rank; or each parameter."""
        self._model, self._sent_from = Model(), []
        sizes = [0] * group.size
        offsets = []
        for param, owner in zip(self.params, self.owners):
            offsets.append(sizes[owner])
            sizes[owner] += param.numel() * param.element_size() + 63 & ~63
        shared = None
        if group.size > 1:
            try:
                shared = _Shared(group, max(sum(sizes), 64))
            except UnsupportedError:
                pass  # on all ranks alike: they are on several machines
        if shared is None:
            self._model_owners = self.owners
            for place, param in enumerate(self.params):
                value = _on_cpu(param.data)
                dtype, parts = rules.kind_of(param.dtype)
                self._sent_from.append(value)
                self._model.add(str(place), _arrays.View(value.data_ptr(), dtype,
                                                         (value.numel() * parts,), value))
            return
        begins, at = [], shared.address
        self._model_owners = list(range(group.size))
        for rank, size in enumerate(sizes):
            begins.append(at)
            self._model.add(str(rank), _arrays.View(at, "f32", (size // 4,), shared))
            at += size
        for param, owner, offset in zip(self.params, self.owners, offsets):
            self._sent_from.append(rules.tensor_at(begins[owner] + offset, param.data, shared))

    def _somewhere(self, rank):
        """Addresses of gradients, which nobody reads: that there are some says that values come."""
        places = [place for place, owner in enumerate(self._model_owners) if owner == rank]
        sizes = [self._model._arrays[place][0] for place in places]
        sizes = [view.count * _arrays.SIZES[view.dtype] for view in sizes]
        self._room = mmap.mmap(-1, sum(sizes) + 64 * len(sizes) + 1)  # takes no memory
        at = ctypes.addressof(ctypes.c_char.from_buffer(self._room))
        found = (ctypes.c_void_p * len(self._model_owners))()
        for place, size in zip(places, sizes):
            found[place] = at
            at += size + 64 & ~63
        return found

    def _rule(self, update):
        """A rule whose update is Python's."""
        shard = weakref.ref(self)
        method = update and weakref.WeakMethod(update)

        def begin(_optim, _argument, _context):
            here = shard()
            if here.rule is None:
                method()()
            else:
                here._run()
            for place in here.own:
                _copy(here._sent_from[place], here.params[place].data)
        table = c.cz_rule(abi=c.CZ_RULE_ABI, name=b"torch",
                          hyper_size=ctypes.sizeof(c.cz_hyper_spec),
                          slot_size=ctypes.sizeof(c.cz_slot_spec))
        table.size = ctypes.sizeof(table)
        kinds = dict(c.cz_rule._fields_)
        table.slots_used = kinds["slots_used"](lambda _: 0)
        table.prepare = kinds["prepare"](lambda *_: None)
        table.begin_step = kinds["begin_step"](self._thrown.guard(begin))
        table.update_tensor = kinds["update_tensor"](lambda _: None)
        return table

    # ---- a step ----

    def step(self, gradients=None, closure=None):
        """Update what this rank owns, and bring values to all ranks. Collective.

        Args:
            gradients: one for each parameter, None: skip it; not given: the parameters' own.
            closure: of a step by kernels: run before anything else, once.

        Returns:
            The places of this rank's parameters that kernels have updated.
        """
        used, failure = [], None
        if closure is not None:
            try:
                closure()
            except BaseException as exception:
                failure = exception
        self._meet(failure)
        self._run = lambda: used.extend(self._step_own(gradients))
        try:
            call(lib.cz_zero_step(self.zero._ptr, self._options, None), self._thrown)
        finally:
            self._run = None
        owners, mine = self.owners, self._group.rank
        for place, param in enumerate(self.params):
            if owners[place] != mine:
                _copy(param.data, self._sent_from[place])
        return used

    def _meet(self, failure):
        """All ranks have come: their closures have run, and they have copied the values of the step
        before. Where one failed all raise, and nothing was changed."""
        group = self._group
        flags = array.array("B", bytes(group.size))
        group.all_gather(array.array("B", [failure is not None]), flags)
        if not any(flags):
            return
        rank = list(flags).index(1)
        text = f"{type(failure).__name__}: {failure}".encode() if failure is not None else b""
        text = group.broadcast_bytes(text, rank).decode(errors="replace")
        raise failure or StateError(f"rank {rank} of {group.size}: {text}")

    # ---- kernels ----

    def _make_local(self, param_groups):
        """The library's optimizer over what this rank owns, where it is (or a copy on the CPU)."""
        self._index = {place: number for number, place in enumerate(self.own)}
        self._sent = [rules.hypers_of(self.rule, group) for group in param_groups]
        self._homes, model = [], Model()
        for number, place in enumerate(self.own):
            value = _on_cpu(self.params[place].data)
            self._homes.append(value)
            model.add(str(number), _arrays.View(value.data_ptr(), rules.DTYPES[value.dtype],
                                                (value.numel(),), value))
        numbers = {id(self.params[place]): number for place, number in self._index.items()}
        self._group_index, groups = {}, []
        for index, (group, values) in enumerate(zip(param_groups, self._sent)):
            mine = [numbers[id(param)] for param in group["params"] if id(param) in numbers]
            if mine:
                self._group_index[index] = len(groups)
                groups.append({"params": mine, **values})
        if not groups:
            return
        self.local = Optim(model, self.rule, groups=groups,
                           threads=min(torch.get_num_threads(), 64), **self._sent[0])
        self._local_options = c.cz_step_options(allow_no_gradients=1,
                                                gradient_count=len(self.own))
        self._gradients = (ctypes.c_void_p * len(self.own))()
        self._local_options.gradients = self._gradients

    def _step_own(self, gradients):
        if self.local is None:
            return []
        used, kept = [], []
        for number, place in enumerate(self.own):
            param, home = self.params[place], self._homes[number]
            gradient = param.grad if gradients is None else gradients[place]
            if gradient is None:
                self._gradients[number] = None
                continue
            if gradient.layout is not torch.strided:
                if self.rule not in ("sgd", "adagrad"):
                    raise RuntimeError(f"{self.rule} does not support sparse gradients")
                gradient = gradient.to_dense()
            if gradient.dtype != home.dtype or gradient.device != home.device \
                    or not gradient.is_contiguous():
                gradient = gradient.to(device="cpu", dtype=home.dtype).contiguous()
            kept.append(gradient)
            self._gradients[number] = gradient.data_ptr()
            used.append(place)
            _copy(home, param.data)
        call(lib.cz_optim_step(self.local._ptr, self._local_options, None))
        for place in used:
            _copy(self.params[place].data, self._homes[self._index[place]])
        return used

    def send_hypers(self, param_groups):
        """Give the library what has changed in the options. Returns whether something besides the
        rate did: memory of the state may have moved."""
        moved = False
        for index, (sent, group) in enumerate(zip(self._sent, param_groups)):
            now = rules.hypers_of(self.rule, group)
            for name, value in now.items():
                if sent.get(name) != value and index in self._group_index:
                    call(lib.cz_optim_set_hyper(self.local._ptr, self._group_index[index],
                                                name.encode(), value))
                    moved = moved or name != "lr"
            self._sent[index] = now
        return moved

    def slot(self, place, name):
        """A slot's memory as a tensor, or None."""
        data, count = ctypes.c_void_p(), ctypes.c_int64()
        number = self._index[place]
        call(lib.cz_optim_state(self.local._ptr, number, name.encode(), 0, ctypes.byref(data),
                                ctypes.byref(count)))
        like = self.params[place].data
        if like.numel() == 0:
            return torch.empty_like(like)
        return rules.tensor_at(data.value, like, self.local) if data.value else None

    def scalar(self, place, name):
        return self.local.scalar(self._index[place], name)

    def load(self, state):
        """Take {place: {slot: tensor, "step": number, …}} of this rank's parameters."""
        if self.local is None:
            return
        groups = {str(index): {"params": [str(number) for number in one.params], **dict(one)}
                  for index, one in enumerate(self.local.param_groups)}
        self.local.load_state_dict({
            "rule": self.rule, "param_groups": groups,
            "state": {str(self._index[place]): values for place, values in state.items()}})


def _on_cpu(value):
    """A tensor as the library can take it: itself, or a copy on the CPU."""
    if value.device.type == "cpu" and value.is_contiguous():
        return value
    return value.detach().to("cpu", copy=True).contiguous()


_cpu = lib.cz_device_cpu().contents
_LARGE = 256 << 10  # bytes that caches are too good for


def _copy(to, source):
    """Unless they are the same memory."""
    there, here = to.data_ptr(), source.data_ptr()
    if there == here:
        return
    size = to.numel() * to.element_size()
    if (size < _LARGE or to.device.type != "cpu" or source.device.type != "cpu"
            or not (to.is_contiguous() and source.is_contiguous())):
        to.copy_(source)
    else:
        _cpu.copy_once(None, there, here, size)
