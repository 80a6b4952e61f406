# SPDX-License-Identifier: MIT
"""Which optimizers of PyTorch's run in the library's kernels, and how their options and their state
look there."""
import ctypes

import torch

from .. import _arrays

# The classes, themselves and not what is derived from them: the rule, and what pairs are called.
_RULES = {"SGD": "sgd", "Adam": "adam", "AdamW": "adamw", "Adamax": "adamax",
          "Adadelta": "adadelta", "Adagrad": "adagrad", "RMSprop": "rmsprop", "Rprop": "rprop",
          "NAdam": "nadam", "RAdam": "radam"}
RULES = {getattr(torch.optim, name): rule for name, rule in _RULES.items()}
_PAIRS = {"betas": ("beta1", "beta2"), "etas": ("eta_minus", "eta_plus"),
          "step_sizes": ("step_size_min", "step_size_max")}
_NAMES = {
    "sgd": "lr momentum dampening weight_decay nesterov maximize",
    "adam": "lr beta1 beta2 eps weight_decay amsgrad maximize",
    "adamw": "lr beta1 beta2 eps weight_decay amsgrad maximize",
    "adamax": "lr beta1 beta2 eps weight_decay maximize",
    "adadelta": "lr rho eps weight_decay maximize",
    "adagrad": "lr lr_decay weight_decay initial_accumulator_value eps maximize",
    "rmsprop": "lr alpha eps weight_decay momentum centered maximize",
    "rprop": "lr eta_minus eta_plus step_size_min step_size_max maximize",
    "nadam": "lr beta1 beta2 eps weight_decay momentum_decay decoupled_weight_decay maximize",
    "radam": "lr beta1 beta2 eps weight_decay decoupled_weight_decay maximize",
}
_HYPERS = {rule: names.split() for rule, names in _NAMES.items()}
# How PyTorch 2 writes the first moment: p + w (g - p), where 1.13 has p b + g (1 - b).
_LERP = {"adam", "adamw", "adamax", "rmsprop", "nadam", "radam"}
_IS_2 = int(torch.__version__.split(".")[0]) >= 2
DTYPES = {torch.float32: "f32", torch.float64: "f64"}


def rule_of(optimizer_class, param_groups, params):
    """The rule that does what this class does with these options; None: there is none."""
    rule = RULES.get(optimizer_class)
    if rule is None or any(param.dtype not in DTYPES for param in params):
        return None
    for group in param_groups:
        if group.get("differentiable") or group.get("capturable"):
            return None
        if optimizer_class.__name__ == "Adam" and group.get("decoupled_weight_decay"):
            return None
    return rule


def hypers_of(rule, group):
    """A parameter group's options as the library's hyper-parameters, by name."""
    found = {}
    for name, value in group.items():
        if name in _PAIRS:
            for one, part in zip(_PAIRS[name], value):
                found[one] = float(part)
        elif name in _HYPERS[rule]:
            found[name] = float(value)
    if _IS_2 and rule in _LERP:
        found["lerp"] = 1.0
    return {name: value for name, value in found.items()
            if name in _HYPERS[rule] or name == "lerp"}


def layout_of(optimizer_class, group):
    """What the class keeps for a parameter after its first step with these options: a dictionary of
    "element" (a tensor like the parameter), "scalar" (a tensor of one number), or the value itself
    (a number, None), in its order. It is asked, since versions differ."""
    options = {name: value for name, value in group.items() if name not in ("params", "fused")}
    param = torch.zeros(2, 3, requires_grad=True)
    param.grad = torch.zeros(2, 3)
    trial = optimizer_class([{"params": [param], **options}], lr=group["lr"])
    trial.step()
    found = {}
    for name, value in trial.state.get(param, {}).items():
        if not torch.is_tensor(value):
            found[name] = value
        else:
            found[name] = "element" if value.shape == param.shape else "scalar"
    return found


def tensor_at(address, like, keep):
    """A tensor over memory of the library's, of the type and shape of `like`."""
    if like.numel() == 0:
        return torch.empty_like(like)
    block = (ctypes.c_char * (like.numel() * like.element_size())).from_address(address)
    block._keep = keep
    return torch.frombuffer(block, dtype=like.dtype).view(like.shape)


def kind_of(dtype):
    """(type here, elements of it in one of the tensor's), for values that only travel: the bytes
    are what counts."""
    size = torch.empty(0, dtype=dtype).element_size()
    name = {1: "u8", 2: "bf16", 4: "f32", 8: "f64", 16: "f64"}[size]
    return name, size // _arrays.SIZES[name]
