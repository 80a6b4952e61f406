# SPDX-License-Identifier: MIT
"""A drop-in for PyTorch's ZeroRedundancyOptimizer, an optimizer whose state is in the host's
memory, and groups over PyTorch's process groups::

    from czero.torch import ZeroRedundancyOptimizer     # was torch.distributed.optim
    from czero.torch import HostOptimizer

"""
from .groups import group, model
from .host import HostOptimizer
from .overlap import hook_with_zero_step, hook_with_zero_step_interleaved
from .zero import ZeroRedundancyOptimizer, functional_optim_map, register_functional_optim

__all__ = ["HostOptimizer", "ZeroRedundancyOptimizer", "functional_optim_map", "group",
           "hook_with_zero_step", "hook_with_zero_step_interleaved", "model",
           "register_functional_optim"]
