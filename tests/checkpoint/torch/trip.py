#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""trip.py TRIP [CZERO]: torch trains, czero resumes, torch resumes, against torch alone: the same numbers to rounding. And the
other way: czero begins, torch resumes. TRIP is the program of trip.c, CZERO the command, which converts in between. Exit 77: there is no torch here."""
import collections
import os
import pickletools
import subprocess
import sys
import tempfile
import zipfile

try:
    import torch
except ImportError:
    print("no torch here")
    sys.exit(77)

torch.set_num_threads(1)


class Lion(torch.optim.Optimizer):
    """With the values and state of the package lion-pytorch."""

    def __init__(self, params, lr, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                m = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                way = (m * group["betas"][0] + p.grad * (1 - group["betas"][0])).sign()
                p.mul_(1 - group["lr"] * group["weight_decay"]).sub_(way, alpha=group["lr"])
                m.mul_(group["betas"][1]).add_(p.grad, alpha=1 - group["betas"][1])


SHAPES = [("body.weight", (5, 6)), ("body.bias", (5,)), ("scale", ()), ("head.weight", (2, 5))]
RULES = [
    ("sgd", torch.optim.SGD, dict(lr=0.1, momentum=0.9, weight_decay=0.01), dict(lr=0.05, dampening=0.25)),
    ("sgd", torch.optim.SGD, dict(lr=0.1, momentum=0.9, nesterov=True), dict(lr=0.05)),
    ("sgd", torch.optim.SGD, dict(lr=0.1), dict(lr=0.05)),
    ("adam", torch.optim.Adam, dict(lr=0.01, betas=(0.8, 0.95), weight_decay=0.02), dict(lr=0.02, eps=1e-6)),
    ("adam", torch.optim.Adam, dict(lr=0.01, amsgrad=True), dict(lr=0.02)),
    ("adamw", torch.optim.AdamW, dict(lr=0.01, amsgrad=True), dict(lr=0.02, weight_decay=0.1)),
    ("adamw", torch.optim.AdamW, dict(lr=0.01), dict(lr=0.02, betas=(0.7, 0.9))),
    ("rmsprop", torch.optim.RMSprop, dict(lr=0.01, momentum=0.5, centered=True), dict(lr=0.02, alpha=0.9)),
    ("rmsprop", torch.optim.RMSprop, dict(lr=0.01), dict(lr=0.02)),
    ("adagrad", torch.optim.Adagrad, dict(lr=0.1, lr_decay=0.01), dict(lr=0.05)),
    ("adadelta", torch.optim.Adadelta, dict(lr=1.0), dict(rho=0.8)),
    ("adamax", torch.optim.Adamax, dict(lr=0.01), dict(lr=0.02)),
    # one tensor at a time, NAdam of 1.13 has another mu_product than that of later versions
    ("nadam", torch.optim.NAdam, dict(lr=0.01, foreach=True), dict(lr=0.02)),
    ("radam", torch.optim.RAdam, dict(lr=0.01), dict(lr=0.02)),
    ("rprop", torch.optim.Rprop, dict(lr=0.01), dict(lr=0.02, etas=(0.4, 1.3))),
    ("lion", Lion, dict(lr=0.01), dict(lr=0.02, weight_decay=0.1)),
    ("lion", Lion, dict(lr=0.01, betas=(0.8, 0.95)), dict(lr=0.02)),
]


class Job:
    """A model without a forward pass, and its optimizer."""

    def __init__(self, optimizer, first, second, plain=False):
        self.plain = plain  # one group, no buffers
        self.values = collections.OrderedDict()
        for p, (name, shape) in enumerate(SHAPES):
            count = torch.Size(shape).numel()
            value = torch.tensor([((i + p) % 7 - 3) / 8 for i in range(count)]).reshape(shape)
            self.values[name] = torch.nn.Parameter(value)
        self.seen = torch.tensor(0)
        self.mean = torch.zeros(3, dtype=torch.float64)
        names = list(self.values.values())
        groups = [dict(params=names[:2]), dict(params=names[2:], **second)]
        self.optimizer = optimizer(names if plain else groups, **first)

    def resume(self, file):
        self.load(file["model"])
        manners = [group.get("foreach") for group in self.optimizer.param_groups]
        self.optimizer.load_state_dict(file["optimizer"])
        for group, manner in zip(self.optimizer.param_groups, manners):
            group["foreach"] = manner

    def state(self):
        state = collections.OrderedDict((k, v.detach()) for k, v in self.values.items())
        if not self.plain:
            state["body.seen"], state["body.mean"] = self.seen, self.mean
        return state

    def load(self, state):
        assert list(state) == list(self.state()), list(state)
        for name, value in self.values.items():
            value.data.copy_(state[name])
        if self.plain:
            return
        self.seen, self.mean = state["body.seen"], state["body.mean"]
        assert self.seen.dtype == torch.int64 and self.mean.dtype == torch.float64

    def step(self, number):
        for p, value in enumerate(self.values.values()):
            count = value.numel()
            value.grad = torch.tensor([((i + 3 * p + 5 * number) % 9 - 4) / 32 for i in range(count)]).reshape(
                value.shape) + value.detach() * 0.25
        self.seen += 1
        self.mean[number % 3] += 0.5
        self.optimizer.step()

    def run(self, first, count):
        for number in range(first, first + count):
            self.step(number)


def hypers_of(second):
    """As trip takes them, under the names here."""
    pairs = dict(betas=("beta1", "beta2"), etas=("eta_minus", "eta_plus"))
    words = []
    for key, value in second.items():
        if key in pairs:
            words += ["%s=%r" % kv for kv in zip(pairs[key], value)]
        else:
            words.append("%s=%r" % (key, value))
    return words


# What torch.load(weights_only=True) takes in torch 2.0; torch 1.13 takes no BINFLOAT, so no optimizer, not even its own.
OPCODES = set("""APPEND APPENDS BINFLOAT BINGET BININT BININT1 BININT2 BINPERSID BINPUT BINUNICODE BUILD EMPTY_DICT
EMPTY_LIST EMPTY_SET EMPTY_TUPLE GLOBAL LONG1 LONG_BINGET LONG_BINPUT MARK NEWFALSE NEWOBJ NEWTRUE NONE PROTO REDUCE
SETITEM SETITEMS SHORT_BINSTRING STOP TUPLE TUPLE1 TUPLE2 TUPLE3""".split())
GLOBALS = {"collections OrderedDict", "torch._utils _rebuild_tensor_v2"} | {
    "torch %sStorage" % t for t in ("Float", "Double", "Half", "BFloat16", "Int", "Long", "Byte")}


def load(path):
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        for name in archive.namelist():
            if "/data/" in name:
                with archive.open(name):  # positions at its bytes
                    info = archive.getinfo(name)
                    assert info.compress_type == zipfile.ZIP_STORED
        for opcode, argument, _ in pickletools.genops(archive.read("archive/data.pkl")):
            assert opcode.name in OPCODES, opcode.name
            assert opcode.name != "GLOBAL" or argument in GLOBALS, argument
    return torch.load(path, weights_only=True) if torch.__version__ >= "2" else torch.load(path)


def near(a, b, what):
    assert a.dtype == b.dtype and a.shape == b.shape, what
    assert torch.allclose(a, b, rtol=2e-5, atol=1e-7), "%s: %s, wanted %s" % (what, a, b)


def compare(job, alone, what):
    for name in alone.values:
        near(job.values[name].data, alone.values[name].data, "%s: %s" % (what, name))
    assert alone.plain or torch.equal(job.seen, alone.seen) and torch.equal(job.mean, alone.mean), what
    one, two = job.optimizer.state_dict(), alone.optimizer.state_dict()
    for state in (one["state"], two["state"]):  # torch 2 has none for SGD without momentum, 1.13 has a None
        for number in [n for n, entry in state.items() if all(value is None for value in entry.values())]:
            del state[number]
    assert set(one["state"]) == set(two["state"]), what
    for number, entry in two["state"].items():
        for key, value in entry.items():
            if torch.is_tensor(value):
                near(torch.as_tensor(one["state"][number][key], dtype=value.dtype), value, "%s: %s" % (what, key))
            elif value is not None:
                assert float(one["state"][number][key]) == value, (what, key)
    for one_group, two_group in zip(one["param_groups"], two["param_groups"]):
        for key, value in two_group.items():
            assert key in ("fused", "foreach") or one_group[key] == value, (what, key, one_group.get(key), value)


def check_keys(file, job):
    """All that torch's class has in its groups is there."""
    for group, own in zip(file["optimizer"]["param_groups"], job.optimizer.state_dict()["param_groups"]):
        missing = set(own) - set(group)
        assert not missing, missing


def trip(program, *words):
    done = subprocess.run([program] + [str(w) for w in words], stderr=subprocess.PIPE, universal_newlines=True)
    assert done.returncode == 0, (words, done.stderr)


def there_and_back(program, folder, case, world, new):
    rule, optimizer, first, second = case
    what = "%s %s on %d" % (rule, first, world)
    path, out = os.path.join(folder, "torch.pt"), os.path.join(folder, "czero.pt")
    alone = Job(optimizer, first, second)
    alone.run(0, 9)
    job = Job(optimizer, first, second)
    job.run(0, 3)
    keys = ("model", "optimizer") if new else ("model_state_dict", "optimizer_state_dict")
    torch.save({keys[0]: job.state(), keys[1]: job.optimizer.state_dict(), "epoch": 3, "loss": 0.5, "note": None}, path)
    trip(program, rule, world, path, out, 3, 3)
    file = load(out)
    assert file["czero"]["step"] == 6 and file["czero"]["rule"] == rule
    back = Job(optimizer, first, second)
    back.resume(file)
    check_keys(file, back)
    back.run(6, 3)
    compare(back, alone, what)


def from_czero(program, folder, case, world):
    rule, optimizer, first, second = case
    if "betas" in first or "lr_decay" in first or "nesterov" in first or "momentum" in first or "amsgrad" in first:
        return
    path = os.path.join(folder, "begun.pth")
    second = dict(first, **second)
    first = dict(first, lr=0.5)
    second.pop("foreach", None)
    trip(program, rule, world, "-", path, 0, 4, *hypers_of(second))
    file = load(path)
    alone = Job(optimizer, first, second)
    alone.run(0, 8)
    back = Job(optimizer, first, second)
    back.resume(file)
    back.run(4, 4)
    compare(back, alone, "%s from czero on %d" % (rule, world))


def model_alone(program, folder):
    """This much every torch reads with weights_only."""
    path = os.path.join(folder, "model.bin")
    trip(program, "sgd", 2, "-", path, 0, 2, "parameters-only")
    job = Job(torch.optim.SGD, dict(lr=0.5), {})
    job.run(0, 2)
    state = torch.load(path, weights_only=True)
    assert type(state) is collections.OrderedDict and list(state) == list(job.state())
    for name, value in job.state().items():
        near(state[name], value, name)


def same_bytes(program, folder):
    """Whatever the number of ranks."""
    files = []
    for world in (1, 2, 3, 5, 7):
        path = os.path.join(folder, "world%d.pt" % world)
        trip(program, "adamw", world, "-", path, 0, 2)
        files.append(open(path, "rb").read())
    assert all(f == files[0] for f in files)
    assert not [f for f in os.listdir(folder) if "tmp" in f or "elements" in f]


def convert(czero, *words):
    done = subprocess.run([czero, "convert"] + list(words), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          universal_newlines=True)
    assert done.returncode == 0, (words, done.stderr)
    return done.stderr


def refused(words, sentence, code=2):
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
    assert done.returncode == code and sentence in done.stderr, (words, done)


def either(program, czero, folder):
    """A file that does not tell Adam from AdamW, converted where no model says: an optimizer of either loads it."""
    for rule, optimizer, first in (("adamw", torch.optim.AdamW, dict(lr=0.01, weight_decay=0.1)),
                                   ("adam", torch.optim.Adam, dict(lr=0.01, weight_decay=0.1, amsgrad=True))):
        alone, job = Job(optimizer, first, {}, plain=True), Job(optimizer, first, {}, plain=True)
        alone.run(0, 9)
        job.run(0, 3)
        state = job.optimizer.state_dict()
        for group in state["param_groups"]:
            for key in ("maximize", "foreach", "capturable", "differentiable", "fused", "decoupled_weight_decay"):
                group.pop(key, None)  # as torch 1.10 writes it
        names = [os.path.join(folder, rule + end) for end in (".pt", "", ".again.pt", ".safetensors", ".out.pt")]
        torch.save({"model": job.state(), "optimizer": state}, names[0])
        for number, (source, target) in enumerate(zip(names[:3], names[1:4])):  # parts, torch's again, safetensors
            said = convert(czero, source, target, *([] if number else ["--ranks", "3"]))
            assert number or "Adam or AdamW" in said and "czero convert --rule" in said, said
        for source in (names[2], names[3]):
            trip(program, rule, 2, source, names[4], 3, 3, "plain")
            file = load(names[4])
            assert file["czero"]["rule"] == rule
            back = Job(optimizer, first, {}, plain=True)
            back.resume(file)
            check_keys(file, back)
            back.run(6, 3)
            compare(back, alone, "%s by way of either" % rule)
        refused([program, "sgd", "2", names[3], names[4], "3", "3", "plain"],
                "the optimizer's rule is sgd, in the checkpoint adam|adamw", 1)
        option(program, czero, folder, rule, names)
    order(czero, folder)


def option(program, czero, folder, rule, names):
    """--rule says what those files, and what was made of them, leave open. An optimizer of the other then refuses."""
    other = {"adam": "adamw", "adamw": "adam"}[rule]
    for number, source in enumerate(names[:4]):
        target = os.path.join(folder, "%s.told%d.safetensors" % (rule, number))
        convert(czero, source, target, "--rule", rule)
        refused([czero, "convert", target, names[4], "--force", "--rule", other],
                "--rule %s, but its optimizer is %s" % (other, rule))
        refused([czero, "convert", source, names[4], "--force", "--rule", "sgd"], "--rule sgd, but its optimizer is adam")
        trip(program, rule, 2, target, names[4], 3, 3, "plain")
        refused([program, other, "2", target, names[4], "3", "3", "plain"],
                "the optimizer's rule is %s, in the checkpoint %s" % (other, rule), 1)


def order(czero, folder):
    """AdamW's order of keys, and an option that speaks against it."""
    job = Job(torch.optim.AdamW, dict(lr=0.01), {}, plain=True)
    job.run(0, 3)
    source, target = os.path.join(folder, "order.pt"), os.path.join(folder, "order.safetensors")
    torch.save({"model": job.state(), "optimizer": job.optimizer.state_dict()}, source)
    if "decoupled_weight_decay" in job.optimizer.param_groups[0]:
        refused([czero, "convert", source, target, "--rule", "adam"], "--rule adam, but its optimizer is adamw")
        return
    assert "is taken for adamw" in convert(czero, source, target)
    assert "note" not in convert(czero, source, target, "--rule", "adamw", "--force")
    assert "is taken for adam, as wanted, but torch's adamw" in convert(czero, source, target, "--rule", "adam", "--force")
    refused([czero, "convert", target, source, "--force", "--rule", "adamw"], "--rule adamw, but its optimizer is adam")



def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as folder:
        for number, case in enumerate(RULES):
            there_and_back(program, folder, case, (1, 2, 3, 5, 7)[number % 5], number % 2 == 0)
            from_czero(program, folder, case, (3, 1, 2)[number % 3])
            print("ok", case[0], case[2])
        model_alone(program, folder)
        same_bytes(program, folder)
        if len(sys.argv) > 2:
            either(program, sys.argv[2], folder)
            print("ok either")


main()
