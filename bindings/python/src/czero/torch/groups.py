# SPDX-License-Identifier: MIT
"""Groups of czero over PyTorch's process groups, and models of czero over PyTorch's modules."""
import torch
import torch.distributed as dist

from ..group import Group
from ..model import Model


def group(process_group=None, timeout=0.0):
    """A group of the ranks of a process group of PyTorch's, of whatever backend. That is used to
    find the other processes; then they have sockets and shared memory of their own, so its
    collectives and this group's need no common order. Collective over it.

    Args:
        process_group: None: the world.
        timeout: seconds, as for :func:`czero.launch`.

    Raises:
        RuntimeError: there is no process group, or this process is not in it.
    """
    process_group = process_group if process_group is not None else dist.group.WORLD
    rank, size = dist.get_rank(process_group), dist.get_world_size(process_group)
    if rank < 0:
        raise RuntimeError("this process is not in the process group")
    if size == 1:
        return Group.self_()

    def exchange(data):
        given = [None] * size
        dist.all_gather_object(given, data, group=process_group)
        return given
    return Group.connect(rank, size, exchange, timeout)


def model(module):
    """A :class:`czero.Model` of a module's parameters and buffers, by their names and in place: for
    checkpoints, plans, :class:`czero.Zero` and :class:`czero.DDP`. A parameter without a gradient
    gets one of zeros, which has to stay where it is: ``module.zero_grad(set_to_none=False)``.

    Raises:
        ArgumentError: a tensor that is not on the CPU, not contiguous, or of another type than the
            library has.
    """
    made = Model()
    for name, param in module.named_parameters():
        if param.requires_grad and param.grad is None:
            param.grad = torch.zeros_like(param, memory_format=torch.contiguous_format)
        made.add(name, param, param.grad)
        if not param.requires_grad:
            made.set_requires_grad(name, False)
    for name, buffer in module.named_buffers():
        made.add_buffer(name, buffer)
    return made
