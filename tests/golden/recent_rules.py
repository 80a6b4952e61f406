#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""recent_rules.py: writes optim_RULE.gold, beside itself, for the rules that PyTorch 1.13 does not have.
recent_rules.py --check: are the files there what it would write? Exit 77: there is no numpy here.

Each rule is here twice: as its paper writes it, in float64 (paper_RULE), and in the order of operations of the kernels in
src/device/cpu/kernels/, one rounding each (kernel_RULE), in float32 and float64. The second is what is written; the first
must agree with it. README.md has the format of the files."""
import io
import math
import os
import sys

try:
    import numpy as np
except ImportError:
    print("no numpy here")
    sys.exit(77)

FOLDER = os.path.dirname(os.path.abspath(__file__))
COUNTS = [35, 13, 1]
SHAPES = {35: (7, 5), 13: (1, 13), 1: (1, 1)}  # where a rule takes matrices
STEPS = 10
SHOWN = (1, 2, 5, 10)
SCALES = [1, 0.5, 2, 1, 0.25, 1, 4, 0.125, 1, 0.5]


# ---- inputs: those of inputs.gold ----

def stream(seed, count):
    numbers = []
    for i in range(count):
        x = ((seed << 32) + i + 0x9E3779B97F4A7C15) & (1 << 64) - 1
        x = ((x ^ x >> 30) * 0xBF58476D1CE4E5B9) & (1 << 64) - 1
        x = ((x ^ x >> 27) * 0x94D049BB133111EB) & (1 << 64) - 1
        numbers.append(((x ^ x >> 31) >> 40) / 2**23 - 1)
    return np.array(numbers)


def gradient(step, param):
    values = stream(1000 * step + param, COUNTS[param]) * SCALES[step - 1]
    if step == 3:
        values[::7] = 0
    return values


# ---- as in the papers: p and g are arrays of float64, s is the state of one parameter, h the hyper-parameters ----

def norm(x):
    return math.sqrt(math.fsum(x * x))


def moment(s, name, keep, x):
    s[name] = keep * s.get(name, 0 * x) + (1 - keep) * x
    return s[name]


def adam_direction(s, h, g, t):
    m = moment(s, "exp_avg", h["beta1"], g) / (1 - h["beta1"] ** t)
    v = moment(s, "exp_avg_sq", h["beta2"], g * g) / (1 - h["beta2"] ** t)
    return m / (np.sqrt(v) + h["eps"])


def paper_lion(p, g, s, h, t):
    m = s.get("exp_avg", 0 * g)
    c = h["beta1"] * m + (1 - h["beta1"]) * g
    moment(s, "exp_avg", h["beta2"], g)
    return p - h["lr"] * (np.sign(c) + h["weight_decay"] * p)


def paper_lamb(p, g, s, h, t):
    if h["bias_correction"]:
        r = adam_direction(s, h, g, t)
    else:
        r = moment(s, "exp_avg", h["beta1"], g) / (np.sqrt(moment(s, "exp_avg_sq", h["beta2"], g * g)) + h["eps"])
    u = r + h["weight_decay"] * p
    trust = norm(p) / norm(u) if (h["always_adapt"] or h["weight_decay"]) and norm(p) and norm(u) else 1
    return p - h["lr"] * (min(trust, 1) if h["trust_clip"] else trust) * u


def paper_lars(p, g, s, h, t):
    trust = 1
    if h["always_adapt"] or h["weight_decay"]:
        if norm(p) and norm(g):
            trust = h["trust_coefficient"] * norm(p) / (norm(g) + h["weight_decay"] * norm(p) + h["eps"])
        if h["trust_clip"]:
            trust = min(trust / h["lr"], 1)
    d = trust * (g + h["weight_decay"] * p)
    if h["momentum"]:
        old = s.get("momentum_buffer")
        s["momentum_buffer"] = d if old is None else h["momentum"] * old + (1 - h["dampening"]) * d
        d = d + h["momentum"] * s["momentum_buffer"] if h["nesterov"] else s["momentum_buffer"]
    return p - h["lr"] * d


def paper_ademamix(p, g, s, h, t):
    beta3, alpha = h["beta3"], h["alpha"]
    if h["alpha_warmup"]:
        alpha = min(t * alpha / h["alpha_warmup"], alpha)
    if h["beta3_warmup"]:
        start, end, part = math.log(h["beta1"]), math.log(beta3), t / h["beta3_warmup"]
        beta3 = min(math.exp(start * end / ((1 - part) * end + part * start)) if part < 1 else 1, beta3)
    m = moment(s, "exp_avg_fast", h["beta1"], g) / (1 - h["beta1"] ** t)
    slow = moment(s, "exp_avg_slow", beta3, g)
    v = moment(s, "exp_avg_sq", h["beta2"], g * g) / (1 - h["beta2"] ** t)
    return p - h["lr"] * ((m + alpha * slow) / (np.sqrt(v) + h["eps"]) + h["weight_decay"] * p)


def paper_schedule_free(y, g, s, h, t, beta, direction):
    """z, x and y as the paper has them; y comes back."""
    z, x = s.get("z", y), s.get("x", y)
    lr = h["lr"] * min(1, t / h["warmup_steps"]) if h["warmup_steps"] else h["lr"]
    s["lr_max"] = max(s.get("lr_max", 0), lr)
    weight = t ** h["r"] * s["lr_max"] ** h["weight_lr_power"]
    s["weight_sum"] = s.get("weight_sum", 0) + weight
    c = weight / s["weight_sum"]
    s["z"] = z - lr * (direction + h["weight_decay"] * y)
    s["x"] = (1 - c) * x + c * s["z"]
    return (1 - beta) * s["z"] + beta * s["x"]


def paper_schedule_free_sgd(y, g, s, h, t):
    return paper_schedule_free(y, g, s, h, t, h["momentum"], g)


def paper_schedule_free_adamw(y, g, s, h, t):
    v = moment(s, "exp_avg_sq", h["beta2"], g * g) / (1 - h["beta2"] ** t)
    return paper_schedule_free(y, g, s, h, t, h["beta1"], g / (np.sqrt(v) + h["eps"]))


def paper_adam_mini(p, g, s, h, t):
    m = moment(s, "m", h["beta1"], g) / (1 - h["beta1"] ** t)
    v = moment(s, "vmean", h["beta2"], np.mean(g * g)) / (1 - h["beta2"] ** t)
    return p - h["lr"] * (m / (math.sqrt(v) + h["eps"]) + h["weight_decay"] * p)


def ratio(h, shape):
    rows, columns = shape
    return [math.sqrt(max(1, rows / columns)), 0.2 * math.sqrt(max(shape)), math.sqrt(rows / columns)][h["adjust_lr_fn"]]


def paper_muon(p, g, s, h, t):
    """Jordan's, with the momentum of torch.optim.Muon, which is (1 - momentum) times his."""
    b = moment(s, "momentum_buffer", h["momentum"], g)
    shape = SHAPES[p.size]
    x = (h["momentum"] * b + (1 - h["momentum"]) * g if h["nesterov"] else b).reshape(shape)
    x = x / max(np.linalg.norm(x), h["eps"])
    for _ in range(h["ns_steps"]):
        a = x @ x.T
        x = h["ns_a"] * x + (h["ns_b"] * a + h["ns_c"] * a @ a) @ x
    return p - h["lr"] * h["weight_decay"] * p - h["lr"] * ratio(h, shape) * x.reshape(-1)


# ---- as the kernels: F rounds a number to the type; what is not an array is computed in double and rounded once ----

def squares(x):
    """The exact sum of squares, of f64 of the rounded ones."""
    x = x.astype(np.float64)
    return math.fsum(x * x)


def first_and_second(p, g, s, h, F, names=("exp_avg", "exp_avg_sq")):
    m, v = (s.get(name, F(0) * g) for name in names)
    s[names[0]] = m * F(h["beta1"]) + F(1 - h["beta1"]) * g
    s[names[1]] = v * F(h["beta2"]) + (F(1 - h["beta2"]) * g) * g
    return s[names[0]], s[names[1]]


def kernel_lion(p, g, s, h, t, F):
    m = s.get("exp_avg", F(0) * g)
    mixed = m * F(h["beta1"]) + F(1 - h["beta1"]) * g
    way = np.where(mixed > 0, F(1), np.where(mixed < 0, F(-1), mixed))
    s["exp_avg"] = m * F(h["beta2"]) + F(1 - h["beta2"]) * g
    return p * F(1 - h["lr"] * h["weight_decay"]) + F(-h["lr"]) * way


def kernel_lamb(p, g, s, h, t, F):
    m, v = first_and_second(p, g, s, h, F)
    factor = 1 / (1 - h["beta1"] ** t) if h["bias_correction"] else 1
    root = math.sqrt(1 - h["beta2"] ** t) if h["bias_correction"] else 1
    u = (m * F(factor)) / (np.sqrt(v) / F(root) + F(h["eps"])) + F(h["weight_decay"]) * p
    of_param, of_move, trust = squares(p), squares(u), 1
    if (h["weight_decay"] or h["always_adapt"]) and of_param > 0 and of_move > 0:
        trust = math.sqrt(of_param) / math.sqrt(of_move)
    if h["trust_clip"] and trust > 1:
        trust = 1
    return p + F(-(h["lr"] * trust)) * u


def kernel_lars(p, g, s, h, t, F):
    of_param, of_gradient, trust = math.sqrt(squares(p)), math.sqrt(squares(g)), 1
    if h["weight_decay"] or h["always_adapt"]:
        if of_param > 0 and of_gradient > 0:
            trust = h["trust_coefficient"] * of_param / (of_gradient + h["weight_decay"] * of_param + h["eps"])
        if h["trust_clip"]:
            trust = trust / h["lr"] if trust < h["lr"] else 1
    d = g + F(h["weight_decay"]) * p if h["weight_decay"] else g
    d = d * F(trust)
    if h["momentum"]:
        old = s.get("momentum_buffer")
        b = d if old is None else old * F(h["momentum"]) + F(1 - h["dampening"]) * d
        s["momentum_buffer"] = b
        d = d + F(h["momentum"]) * b if h["nesterov"] else b
    return p + F(-h["lr"]) * d


def kernel_ademamix(p, g, s, h, t, F):
    beta3, alpha = h["beta3"], h["alpha"]
    if t < h["alpha_warmup"]:
        alpha = t / h["alpha_warmup"] * alpha
    if t < h["beta3_warmup"]:
        part = t / h["beta3_warmup"]
        half_lives = [math.log(0.5) / math.log(beta) for beta in (h["beta1"], beta3)]
        beta3 = min(0.5 ** (1 / ((1 - part) * half_lives[0] + part * half_lives[1])), beta3)
    m, v = first_and_second(p, g, s, h, F, ("exp_avg_fast", "exp_avg_sq"))
    s["exp_avg_slow"] = s.get("exp_avg_slow", F(0) * g) * F(beta3) + F(1 - beta3) * g
    fast, slow = F(-(h["lr"] / (1 - h["beta1"] ** t))), F(-(h["lr"] * alpha))
    below = np.sqrt(v) / F(math.sqrt(1 - h["beta2"] ** t)) + F(h["eps"])
    return p * F(1 - h["lr"] * h["weight_decay"]) + (fast * m + slow * s["exp_avg_slow"]) / below


def kernel_schedule_free(y, g, s, h, t, F, beta, d):
    z = s.get("z", y)
    lr = h["lr"] * (t / h["warmup_steps"]) if t < h["warmup_steps"] else h["lr"]
    s["lr_max"] = max(lr, s.get("lr_max", 0.0))
    weight = float(t) ** h["r"] * s["lr_max"] ** h["weight_lr_power"]
    s["weight_sum"] = s.get("weight_sum", 0.0) + weight
    mix = weight / s["weight_sum"]
    if h["weight_decay"]:
        d = d + F(h["weight_decay"]) * y
    s["z"] = z + F(-lr) * d
    return (y + F(mix) * (z - y)) + F(lr * (beta * (1 - mix) - 1)) * d


def kernel_schedule_free_sgd(y, g, s, h, t, F):
    return kernel_schedule_free(y, g, s, h, t, F, h["momentum"], g)


def kernel_schedule_free_adamw(y, g, s, h, t, F):
    v = s.get("exp_avg_sq", F(0) * g) * F(h["beta2"]) + (F(1 - h["beta2"]) * g) * g
    s["exp_avg_sq"] = v
    d = g / (np.sqrt(v) / F(math.sqrt(1 - h["beta2"] ** t)) + F(h["eps"]))
    return kernel_schedule_free(y, g, s, h, t, F, h["beta1"], d)


def kernel_adam_mini(p, g, s, h, t, F):
    mean = squares(g) / g.size
    s["vmean"] = h["beta2"] * s.get("vmean", 0.0) + (1 - h["beta2"]) * mean
    below = math.sqrt(s["vmean"]) / math.sqrt(1 - h["beta2"] ** t) + h["eps"]
    s["m"] = s.get("m", F(0) * g) * F(h["beta1"]) + F(1 - h["beta1"]) * g
    rate = F(-(h["lr"] / (1 - h["beta1"] ** t) / below))
    return p * F(1 - h["lr"] * h["weight_decay"]) + rate * s["m"]


def lerp(start, end, weight):
    """From the nearer end, as torch does it; the weight is of the type."""
    return start + weight * (end - start) if weight < 0.5 else end - (end - start) * (weight.dtype.type(1) - weight)


def product(F, alpha, a, b, beta=None, addend=None):
    """alpha a b + beta addend, sums one product after the other (in blocks of 256, which are longer than these)."""
    total = np.zeros((a.shape[0], b.shape[1]), F)
    for k in range(a.shape[1]):
        total = total + a[:, k:k + 1] * b[k:k + 1, :]
    return F(alpha) * total if addend is None else F(beta) * addend + F(alpha) * total


def symmetric(x):
    """What is above the diagonal, below it, too."""
    return np.triu(x) + np.triu(x, 1).T


def kernel_muon(p, g, s, h, t, F):
    b = lerp(s.get("momentum_buffer", F(0) * g), g, F(1 - h["momentum"]))
    s["momentum_buffer"] = b
    shape = SHAPES[p.size]
    x = (lerp(g, b, F(h["momentum"])) if h["nesterov"] else b).reshape(shape)
    x = x * F(1 / max(math.sqrt(squares(x.reshape(-1))), h["eps"]))
    tall = shape[0] > shape[1]
    for left in range(h["ns_steps"], 0, -3):  # up to three steps at once
        gram = symmetric(product(F, 1, x.T, x) if tall else product(F, 1, x, x.T))
        share = 1.0
        for step in range(min(left, 3)):
            q = symmetric(product(F, h["ns_c"], gram, gram, h["ns_b"], gram))
            if step == 0:
                polynomial = q
            else:
                polynomial = symmetric(product(F, 1, q, polynomial, h["ns_a"], polynomial)) * F(1) + F(share) * q
            half = symmetric(product(F, 1, q, gram, h["ns_a"], gram))
            gram = symmetric(product(F, 1, half, q, h["ns_a"], half))
            share *= h["ns_a"]
        x = product(F, 1, *((x, polynomial) if tall else (polynomial, x)), share, x)
    rate = F(-h["lr"] * ratio(h, shape))
    return p * F(1 - h["lr"] * h["weight_decay"]) + rate * x.reshape(-1)


# ---- the cases ----

DEFAULTS = {
    "lion": dict(lr=1e-4, beta1=0.9, beta2=0.99, weight_decay=0, maximize=0),
    "lamb": dict(lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-6, weight_decay=1e-2, bias_correction=1, always_adapt=1,
                 trust_clip=0, maximize=0),
    "lars": dict(momentum=0.9, dampening=0, weight_decay=0, nesterov=0, trust_coefficient=1e-3, eps=1e-8, always_adapt=1,
                 trust_clip=0, maximize=0),
    "ademamix": dict(lr=1e-3, beta1=0.9, beta2=0.999, beta3=0.9999, alpha=5, beta3_warmup=0, alpha_warmup=0, eps=1e-8,
                     weight_decay=1e-2, maximize=0),
    "schedule_free_sgd": dict(lr=1, momentum=0.9, weight_decay=0, warmup_steps=0, r=0, weight_lr_power=2, maximize=0),
    "schedule_free_adamw": dict(lr=2.5e-3, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0, warmup_steps=0, r=0,
                                weight_lr_power=2, maximize=0),
    "adam_mini": dict(lr=1e-3, beta1=0.9, beta2=0.999, eps=1e-8, weight_decay=0, maximize=0),
    "muon": dict(lr=1e-3, weight_decay=0.1, momentum=0.95, nesterov=1, ns_a=3.4445, ns_b=-4.7750, ns_c=2.0315, eps=1e-7,
                 ns_steps=5, adjust_lr_fn=0, maximize=0),
}

# Name, values, those of parameter 1 where it has a group of its own, steps in which that has no gradient.
CASES = {
    "lion": [
        ("default", dict(), None, ()),
        ("wd_betas", dict(lr=1e-2, beta1=0.95, beta2=0.98, weight_decay=0.3), None, ()),
        ("maximize", dict(lr=1e-3, maximize=1), None, ()),
        ("two_groups", dict(lr=1e-2), dict(lr=1e-3, beta1=0.5, weight_decay=0.1), (1, 4)),
    ],
    "lamb": [
        ("default", dict(), None, ()),
        ("wd", dict(lr=1e-2, weight_decay=0.3), None, (1, 4)),
        ("plain", dict(lr=1e-2, weight_decay=0, always_adapt=0, bias_correction=0), None, ()),
        ("clip_maximize", dict(lr=1e-2, trust_clip=1, maximize=1), None, ()),
        ("two_groups", dict(lr=1e-2), dict(lr=1e-3, beta1=0.5, beta2=0.9, eps=1e-3, weight_decay=0), ()),
    ],
    "lars": [
        ("default", dict(lr=1), None, ()),
        ("nesterov_wd", dict(lr=2, nesterov=1, weight_decay=0.1, trust_coefficient=0.02), None, ()),
        ("plain", dict(lr=0.1, momentum=0, always_adapt=0), None, ()),
        ("clip_dampening_max", dict(lr=0.01, trust_clip=1, dampening=0.3, maximize=1), None, (1, 4)),
        ("two_groups", dict(lr=1), dict(lr=0.1, momentum=0.5, weight_decay=0.1, eps=1e-3), ()),
    ],
    "ademamix": [
        ("default", dict(), None, ()),
        ("warmups", dict(lr=1e-2, beta3_warmup=6, alpha_warmup=8, weight_decay=0.3), None, ()),
        ("maximize", dict(lr=1e-2, alpha=2, maximize=1), None, (1, 4)),
        ("two_groups", dict(lr=1e-2), dict(lr=1e-3, beta1=0.5, beta2=0.9, beta3=0.99, eps=1e-3, weight_decay=0), ()),
    ],
    "schedule_free_sgd": [
        ("default", dict(), None, ()),
        ("warmup_wd", dict(lr=0.5, warmup_steps=4, weight_decay=0.1), None, (1, 4)),
        ("weights_max", dict(lr=0.1, momentum=0.5, r=1, weight_lr_power=1, maximize=1), None, ()),
        ("two_groups", dict(lr=0.1), dict(lr=0.01, momentum=0.98, weight_decay=0.3), ()),
    ],
    "schedule_free_adamw": [
        ("default", dict(), None, ()),
        ("warmup_wd", dict(lr=1e-2, warmup_steps=4, weight_decay=0.1), None, (1, 4)),
        ("weights_max", dict(lr=1e-2, beta1=0.95, r=1, weight_lr_power=1, maximize=1), None, ()),
        ("two_groups", dict(lr=1e-2), dict(lr=1e-3, beta1=0.5, beta2=0.9, eps=1e-3, weight_decay=0.3), ()),
    ],
    "adam_mini": [
        ("default", dict(), None, ()),
        ("wd", dict(lr=1e-2, weight_decay=0.3), None, (1, 4)),
        ("maximize", dict(lr=1e-2, maximize=1), None, ()),
        ("two_groups", dict(lr=1e-2), dict(lr=1e-3, beta1=0.5, beta2=0.9, eps=1e-3, weight_decay=0.1), ()),
    ],
    "muon": [
        ("default", dict(), None, ()),
        ("moonlight", dict(lr=0.02, adjust_lr_fn=1, weight_decay=0.3), None, (1, 4)),
        ("plain_maximize", dict(lr=0.02, adjust_lr_fn=2, nesterov=0, momentum=0.4, maximize=1), None, ()),
        ("two_groups", dict(lr=0.02), dict(lr=0.01, momentum=0, ns_steps=3, ns_a=1.5, ns_b=-0.5, ns_c=0, eps=10), ()),
    ],
}
COUNTED = {"lamb", "ademamix", "schedule_free_sgd", "schedule_free_adamw", "adam_mini"}


def show(number):
    mantissa, exponent = float(number).hex().split("p")
    if "." in mantissa:
        mantissa = mantissa.rstrip("0").rstrip(".")
    return mantissa + "p" + exponent


def record(file, kind, key, values):
    values = np.atleast_1d(values)
    file.write("%s %s %d %s\n" % (kind, key, values.size, " ".join(map(show, values))))


def agree(rule, case, one, two, dtype):
    limit = 1e-11 if dtype is np.float64 else 1e-4
    scale = max(np.max(np.abs(two)), 1e-3)
    assert np.max(np.abs(np.asarray(one, np.float64) - two)) <= limit * scale, (rule, case, one, two)


def write_case(file, rule, case, dtype):
    name, values, others, without = case
    paper, kernel = globals()["paper_" + rule], globals()["kernel_" + rule]
    kind = np.dtype(dtype).name.replace("float", "f")
    groups = [dict(DEFAULTS[rule], **values)]
    members = [[0, 1, 2]]
    if others is not None:
        groups.append(dict(groups[0], **others))
        members = [[0, 2], [1]]
    file.write("case %s.%s.%s\nstr optimizer %s\n" % (rule, name, kind, rule))
    for number, (group, params) in enumerate(zip(groups, members)):
        file.write("i64 group%d.params %d %s\n" % (number, len(params), " ".join(map(str, params))))
        file.write("str group%d.options %s\n" % (number, " ".join("%s=%r" % kv for kv in sorted(group.items()))))
    file.write("i64 nograd.param1.steps %d%s\n" % (len(without), "".join(" %d" % step for step in without)))
    p = [stream(1 + i, count).astype(dtype) for i, count in enumerate(COUNTS)]
    q = [stream(1 + i, count) for i, count in enumerate(COUNTS)]
    s, r, counts = [{}, {}, {}], [{}, {}, {}], [0, 0, 0]
    for step in range(1, STEPS + 1):
        for i in range(3):
            if i == 1 and step in without:
                continue
            h = groups[next(n for n, params in enumerate(members) if i in params)]
            counts[i] += 1
            sign = -1 if h["maximize"] else 1
            p[i] = kernel(p[i], dtype(sign) * gradient(step, i).astype(dtype), s[i], h, counts[i], dtype)
            q[i] = paper(q[i], sign * gradient(step, i), r[i], h, counts[i])
            assert p[i].dtype == dtype
            agree(rule, name, p[i], q[i], dtype)
            for slot, value in s[i].items():
                agree(rule, name, value, r[i][slot], dtype)
        if step not in SHOWN:
            continue
        for i in range(3):
            record(file, kind, "t%d.p%d" % (step, i), p[i])
            if rule in COUNTED and counts[i]:
                record(file, "f64", "t%d.p%d.step" % (step, i), counts[i])
            for slot, value in s[i].items():
                record(file, kind if isinstance(value, np.ndarray) else "f64", "t%d.p%d.%s" % (step, i, slot), value)
    file.write("end\n")


def main():
    for rule, cases in CASES.items():
        file, path = io.StringIO(), os.path.join(FOLDER, "optim_%s.gold" % rule)
        file.write("# parameters and state after steps 1, 2, 5 and 10; by recent_rules.py\n")
        for dtype in (np.float32, np.float64):
            for case in cases:
                write_case(file, rule, case, dtype)
        if sys.argv[1:] == ["--check"]:
            with open(path) as there:
                assert there.read() == file.getvalue(), "%s is not what recent_rules.py computes" % path
        else:
            with open(path, "w", newline="\n") as there:
                there.write(file.getvalue())


if __name__ == "__main__":
    main()
