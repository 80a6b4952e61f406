# SPDX-License-Identifier: MIT
"""Some parameters of an optimizer: each rank updates those that it owns, and gets the others."""
import ctypes
import mmap
import weakref

import torch

from .. import _arrays
from .. import _declarations as c
from .._library import Handle, Thrown, call, called, lib
from ..errors import UnsupportedError
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

    A step is one of the library's sharded optimizer, whose rule is Python's. When it begins its
    closure runs, or `update()` updates what this rank owns; an exception there ends the step on all
    ranks. Once they agree the owner updates by the library's kernels (`rule`, an :class:`Optim`
    over what it owns), and puts the values where they travel from; the library brings them to all
    ranks. On one machine that is memory which all of them see, and it says when values are there.
    That all have come to a step says that they have copied the values of the one before.
    """

    def __init__(self, group, params, owners, rule, param_groups=(), update=None):
        self.params, self.owners, self.rule = params, owners, rule
        self._sizes = [param.numel() * param.element_size() for param in params]
        self.own = [place for place, owner in enumerate(owners) if owner == group.rank]
        self._group, self._thrown = group, Thrown()
        self._begin, self._ready, self._used = None, False, []
        self._table = self._rule(update)
        self._share(group)
        self.zero = Zero(group, self._model, self._table, partition="given",
                         owners=self._model_owners, gradients="reduced", threads=1)
        self._options = c.cz_step_options(allow_no_gradients=1)
        self._options.gradient_count = len(self._model_owners)
        self._options.gradients = self._somewhere()
        self.local = None
        if rule is not None:
            self._make_local(param_groups)

    # ---- values ----

    def _share(self, group):
        """A model of what travels: a piece of shared memory for each rank; or each parameter."""
        self._model, self._sent_from = Model(), []
        sizes = [0] * group.size
        offsets = []
        for size, owner in zip(self._sizes, self.owners):
            offsets.append(sizes[owner])
            sizes[owner] += size + 63 & ~63
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

    def _somewhere(self):
        """Addresses of gradients, which nobody reads: that there are some says that values come. On
        all ranks alike, so that they agree in one round."""
        views = [self._model._arrays[place][0] for place in range(len(self._model_owners))]
        sizes = [view.count * _arrays.SIZES[view.dtype] + 127 & ~63 for view in views]
        self._room = mmap.mmap(-1, sum(sizes) + 64, _NO_MEMORY)
        at = ctypes.addressof(ctypes.c_char.from_buffer(self._room))
        found = (ctypes.c_void_p * len(sizes))()
        for place, size in enumerate(sizes):
            found[place] = at
            at += size
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
                here._prepare_own()
            here._ready = True
        table = c.cz_rule(abi=c.CZ_RULE_ABI, name=b"torch",
                          hyper_size=ctypes.sizeof(c.cz_hyper_spec),
                          slot_size=ctypes.sizeof(c.cz_slot_spec))
        table.size = ctypes.sizeof(table)
        kinds = dict(c.cz_rule._fields_)
        table.slots_used = kinds["slots_used"](lambda _: 0)
        table.prepare = kinds["prepare"](lambda *_: None)
        table.begin_step = kinds["begin_step"](self._thrown.guard(begin))
        table.update_tensor = kinds["update_tensor"](called(lambda _: shard()._finish_own()))
        return table

    # ---- a step ----

    def step(self, gradients=None, begin=None):
        """Update what this rank owns, and bring values to all ranks. Collective.

        Args:
            gradients: one for each parameter, None: skip it; not given: the parameters' own.
            begin: of a step by kernels: called before anything else, once.

        Returns:
            The places of this rank's parameters that kernels have updated.
        """
        self._begin, self._given, self._used = begin, gradients, []
        try:
            call(lib.cz_zero_step(self.zero._ptr, self._options, None), self._thrown)
            self._finish_own()  # what has no elements is not asked for
        finally:
            self._begin = self._given = self._kept = None
            self._ready = False
        if (failure := self._thrown.take()) is not None:
            raise failure
        owners, mine = self.owners, self._group.rank
        for place, param in enumerate(self.params):
            if owners[place] != mine:
                _copy(param, self._sent_from[place], self._sizes[place])
        return self._used

    def _finish_own(self):
        """The ranks agree: update by kernels, and put values where they travel from."""
        if not self._ready:
            return
        self._ready = False
        try:
            if self.rule is not None and self.local is not None:
                self._step_own()
            for place in self.own:
                _copy(self._sent_from[place], self.params[place], self._sizes[place])
        except BaseException as exception:  # too late for the others
            self._thrown.keep(exception)

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

    def _prepare_own(self):
        """Begin, and see the gradients of what this rank owns."""
        if self._begin is not None:
            self._begin()
        if self.local is None:
            return
        self._kept = []  # gradients where they are, or copies
        for number, place in enumerate(self.own):
            param, home = self.params[place], self._homes[number]
            gradient = param.grad if self._given is None else self._given[place]
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
            self._kept.append(gradient)
            self._gradients[number] = gradient.data_ptr()
            self._used.append(place)

    def _step_own(self):
        moved = []  # values that are not where the kernels have them
        for place in self._used:
            param, home = self.params[place], self._homes[self._index[place]]
            if param.data_ptr() != home.data_ptr():
                _copy(home, param, self._sizes[place])
                moved.append((param, home, self._sizes[place]))
        call(lib.cz_optim_step(self.local._ptr, self._local_options, None))
        for one in moved:
            _copy(*one)

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
        like = self.params[place].data
        if like.numel() == 0:
            return torch.empty_like(like)
        data, count = ctypes.c_void_p(), ctypes.c_int64()
        call(lib.cz_optim_state(self.local._ptr, self._index[place], name.encode(), 0,
                                ctypes.byref(data), ctypes.byref(count)))
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
# Pages that nobody writes to take no memory, and none is set aside for them.
_NO_MEMORY = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)


def _copy(to, source, size):
    """`size` bytes, unless they are the same memory. Of parameters, their values."""
    there, here = to.data_ptr(), source.data_ptr()
    if there == here:
        return
    if (to.is_cpu and source.is_cpu and to.is_contiguous() and source.is_contiguous()
            and to.dtype == source.dtype):
        if size < _LARGE:
            ctypes.memmove(there, here, size)
        else:
            _cpu.copy_once(None, there, here, size)
    else:
        to.data.copy_(source.data)
