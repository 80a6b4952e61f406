# SPDX-License-Identifier: MIT
"""A drop-in for PyTorch's ZeroRedundancyOptimizer, and groups over PyTorch's process groups::

    from czero.torch import ZeroRedundancyOptimizer     # was torch.distributed.optim

"""
from .groups import group, model
from .overlap import hook_with_zero_step, hook_with_zero_step_interleaved
from .zero import ZeroRedundancyOptimizer, functional_optim_map, register_functional_optim

__all__ = ["ZeroRedundancyOptimizer", "functional_optim_map", "group", "hook_with_zero_step",
           "hook_with_zero_step_interleaved", "model", "register_functional_optim"]
