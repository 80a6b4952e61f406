#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""wild.py LOOK: files as torch writes them, and as attackers do. LOOK is the program of look.c. Exit 77: no torch here."""
import argparse
import collections
import datetime
import enum
import os
import pathlib
import pickle
import random
import subprocess
import sys
import tempfile
import zipfile

try:
    import torch
except ImportError:
    print("no torch here")
    sys.exit(77)

NAMES = {torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16", torch.int32: "i32",
         torch.int64: "i64", torch.uint8: "u8", torch.bool: "u8"}


def run(look, path):
    return subprocess.run([look, path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)


def expected(name, tensor):
    flat = tensor.detach().contiguous().reshape(-1).to(torch.float64)
    placed = (flat * torch.arange(1, flat.numel() + 1, dtype=torch.float64)).sum().item()
    return name, NAMES[tensor.dtype], "(%s)" % ",".join(map(str, tensor.shape)), flat.sum().item(), placed


def check(look, path, tensors):
    done = run(look, path)
    assert done.returncode == 0, done.stderr
    got = {}
    for line in done.stdout.splitlines():
        name, dtype, shape, total, placed = line.split(" ")
        got[name] = (dtype, shape, float(total), float(placed))
    assert set(got) == set(tensors), (set(got) ^ set(tensors))
    for name, tensor in tensors.items():
        _, dtype, shape, total, placed = expected(name, tensor)
        assert got[name][:2] == (dtype, shape), (name, got[name], dtype, shape)
        for a, b in ((got[name][2], total), (got[name][3], placed)):
            assert abs(a - b) <= 1e-9 * max(1, abs(b)), (name, a, b)


def refused(look, path, *words):
    done = run(look, path)
    assert done.returncode == 1, (path, done.stdout)
    for word in (os.path.basename(path),) + words:
        assert word in done.stderr, (word, done.stderr)


def tensors():
    base = torch.arange(6000, dtype=torch.float32).reshape(60, 100) / 7
    tied = torch.randn(11, 3)
    result = {
        "base": base, "transposed": base.t(), "columns": base[:, 10:90:3], "row": base[7], "tail": base[59:, 99:],
        "expanded": torch.tensor([1.5]).expand(4, 3), "permuted": torch.arange(120.).reshape(2, 3, 4, 5).permute(3, 1, 0, 2),
        "tied.a": tied, "tied.b": tied, "tied.part": tied[4:6], "scalar": torch.tensor(2.5), "empty": torch.zeros(0, 4),
        "parameter": torch.nn.Parameter(torch.randn(5)), "channels_last": torch.randn(2, 3, 4, 5).to(
            memory_format=torch.channels_last)}
    for dtype in NAMES:
        result["of %s" % dtype] = (torch.arange(30) % 2).to(dtype)
        result["view %s" % dtype] = (torch.arange(30) % 5).to(dtype).reshape(5, 6).t()
    return {k.replace(" ", "_"): v for k, v in result.items()}


def files_of_torch(look, folder):
    path = os.path.join(folder, "wild.pt")
    state = tensors()
    torch.save(state, path)
    check(look, path, state)
    for protocol in (3, 4):
        torch.save({"state_dict": state, "epoch": 3, "args": {"lr": 0.1, "names": ["a", ("b", None)]}}, path,
                   pickle_protocol=protocol)
        check(look, path, state)
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    torch.save(module.state_dict(), path)  # an OrderedDict with _metadata
    check(look, path, dict(module.state_dict()))
    torch.save(module, path)
    refused(look, path, "torch.nn.modules.container.Sequential")
    torch.save(state, path, _use_new_zipfile_serialization=False)
    refused(look, path, "torch.save(torch.load(old), new)")
    torch.jit.script(module).save(path)
    refused(look, path, "TorchScript", "torch.jit.load(old).state_dict()")


def unreadable_tensors(look, folder):
    path = os.path.join(folder, "odd.pt")
    for name, tensor, words in (
            ("sparse", torch.eye(3).to_sparse(), ("sparse", "to_dense")),
            ("quantised", torch.quantize_per_tensor(torch.ones(3), 0.5, 1, torch.qint8), ("quantised",))):
        torch.save({name: tensor}, path)
        refused(look, path, *words)


def rewrite(source, target, change=None, more=None, method=zipfile.ZIP_STORED):
    """`more`: entries that are added, or are there instead of those of that name."""
    more = more or {}
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", method) as new:
        for name in old.namelist():
            data = old.read(name)
            if name not in more:
                new.writestr(name, change(name, data) if change else data)
        for name, data in more.items():
            new.writestr(name, data)


def later_versions(look, folder):
    """What torch 2 adds, and what it writes otherwise."""
    old, path = os.path.join(folder, "wild.pt"), os.path.join(folder, "later.pt")
    state = {"a": torch.arange(12.).reshape(3, 4).t(), "b": torch.arange(5), "c": torch.tensor([True, False])}
    torch.save(state, old)
    prefix = zipfile.ZipFile(old).namelist()[0].split("/")[0]
    more = {prefix + "/byteorder": "little", prefix + "/.data/serialization_id": "0" * 40,
            prefix + "/.format_version": "1", prefix + "/.storage_alignment": "64"}
    rewrite(old, path, more=more)
    check(look, path, state)

    sizes = {"0": 4, "1": 8, "2": 1}

    def swapped(name, data):
        if "/data/" not in name:
            return data
        size = sizes[name.split("/")[-1]]
        return b"".join(data[i:i + size][::-1] for i in range(0, len(data), size))
    more[prefix + "/byteorder"] = "big"
    rewrite(old, path, swapped, more)
    check(look, path, state)
    rewrite(old, path, method=zipfile.ZIP_DEFLATED)
    refused(look, path, "compressed")

    # tensors with attributes: their type is beside
    text = (b"\x80\x02}X\x01\x00\x00\x00wctorch._tensor\n_rebuild_from_type_v2\n(ctorch._utils\n_rebuild_tensor_v2\n"
            b"ctorch.nn.parameter\nParameter\n((X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000"
            b"X\x03\x00\x00\x00cpuK\x0ctQK\x00K\x03K\x04\x86K\x04K\x01\x86\x89ccollections\nOrderedDict\n)Rt}tRs.")
    rewrite(old, path, lambda n, d: text if n.endswith("data.pkl") else d)
    check(look, path, {"w": state["a"].t()})
    # untyped storages, the type is beside
    text = (b"\x80\x02}X\x01\x00\x00\x00wctorch._utils\n_rebuild_tensor_v3\n((X\x07\x00\x00\x00storagectorch.storage\n"
            b"UntypedStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x30tQK\x00K\x03K\x04\x86K\x04K\x01\x86\x89"
            b"ccollections\nOrderedDict\n)Rctorch\nfloat32\ntRs.")
    rewrite(old, path, lambda n, d: text if n.endswith("data.pkl") else d)
    check(look, path, {"w": state["a"].t()})


class Attack:
    def __init__(self, call, *arguments):
        self.call, self.arguments = call, arguments

    def __reduce__(self):
        return self.call, self.arguments


def attacks(look, folder):
    """Each would leave a file behind."""
    old, path = os.path.join(folder, "wild.pt"), os.path.join(folder, "attack.pt")
    mark = os.path.join(folder, "mark")
    torch.save({"a": torch.ones(2)}, old)
    calls = [(Attack(os.system, "touch " + mark), "posix.system"), (Attack(eval, "open(%r, 'w')" % mark), "eval"),
             (Attack(exec, "open(%r, 'w')" % mark), "exec"), (Attack(open, mark, "w"), "open"),
             (Attack(subprocess.Popen, ["touch", mark]), "Popen"),
             (Attack(torch.load, mark), "serialization.load"), (Attack(pickle.loads, b"I1\n."), "pickle.loads"),
             (Attack(__import__, "this"), "__import__")]
    for protocol in (2, 4):
        for attack, word in calls:
            for root in (attack, {"model": {"w": attack}}, {"a": [attack]}):
                data = pickle.dumps(root, protocol)
                rewrite(old, path, lambda n, d: data if n.endswith("data.pkl") else d)
                refused(look, path, word, "data.pkl")
                assert not os.path.exists(mark)


class Color(enum.Enum):
    RED = 1


class Named(dict):
    pass


class Settings:
    def __init__(self):
        self.depth = 3


def foreign_objects(look, folder):
    """Whatever else a program keeps in its file: the model is read, and what was skipped is said."""
    path = os.path.join(folder, "foreign.pt")
    state = dict(torch.nn.Linear(3, 2).state_dict())
    beside = {"path": pathlib.Path("a"), "args": argparse.Namespace(lr=0.1), "set": {1, 2}, "bytes": b"a\0b\xff",
              "array": bytearray(b"ab"), "time": datetime.datetime(2020, 1, 2), "seed": 2 ** 64 - 5, "huge": -2 ** 200,
              "color": Color.RED, "settings": Settings(), "named": Named(a=1), "random": random.getstate(),
              "default": collections.defaultdict(list, a=[1]), "complex": 1j, "deque": collections.deque([1, 2]),
              "frozen": frozenset([1]), "slice": slice(1, 2), "keys": {(1, 2): 3, 1.5: 2, None: 1, True: 0}}
    try:
        import numpy
        beside.update(scalar=numpy.float64(0.5), vector=numpy.arange(5), generator=numpy.random.get_state())
    except ImportError:
        pass
    for protocol in (2, 3, 4, 5):
        for file in (dict(beside, model=state), Named(model=Named(state)), dict(state, _extra_state=pathlib.Path("b"))):
            torch.save(file, path, pickle_protocol=protocol)
            check(look, path, state)
            says(look, path, "nothing was executed")


def says(look, path, *words):
    """It is read, and its model is whole."""
    done = run(look, path)
    assert done.returncode == 0, (words, done.stderr)
    for word in words:
        assert word in done.stderr, (word, done.stderr)
    return done.stdout


def optimizers(look, folder):
    """What is read of them by a reader that has no model: what is clear, and nothing else."""
    path = os.path.join(folder, "optimizer.pt")
    a, b, c = (torch.nn.Parameter(torch.full((4,), float(i))) for i in (1, 2, 3))
    model = {"a": a.detach(), "b": b.detach(), "c": c.detach()}

    def save(optimizer, **more):
        optimizer.zero_grad()
        (a.sum() + 10 * b.sum() + 100 * c.sum()).backward()
        optimizer.step()
        torch.save(dict({"model": model, "optimizer": optimizer.state_dict()}, **more), path)
        return optimizer

    group = save(torch.optim.AdamW([{"params": [c], "weight_decay": 0.}, {"params": [a, b]}]))
    assert "exp_avg" not in says(look, path, "2 parameter groups", "is left")  # never those of c for a
    torch.save({"optimizer": group.state_dict(), "czero": {"format": "czero consolidated", "version": 1, "step": 3,
                "buffers": [], "common": {}, "rule": "adamw", "params": ["c", "a", "b"]}}, path)
    refused(look, path, "no model", "cz_checkpoint_import()")
    torch.save(group.state_dict(), path)
    refused(look, path, "no model", "cz_checkpoint_import()")
    save(torch.optim.SGD([a, c], lr=1, momentum=0.5))  # b is frozen
    assert "momentum_buffer" not in says(look, path, "2 parameters and the model 3", "is left")
    model["wide"] = torch.zeros(5)
    d = torch.nn.Parameter(torch.ones(5))
    d.grad = torch.ones(5)
    save(torch.optim.SGD([d, a, b, c], lr=1, momentum=0.5))
    assert "momentum_buffer" not in says(look, path, "not of the type and shape", "is left")
    del model["wide"]
    save(torch.optim.ASGD([a, b, c]))
    says(look, path, "none that the library has", "is left")
    for cls, rule in ((torch.optim.RAdam, "radam"), (torch.optim.NAdam, "nadam")):
        optimizer = cls([a, b, c])
        for group in optimizer.param_groups:  # as torch 1.13 has them
            for key in ("maximize", "decoupled_weight_decay"):
                group.pop(key, None)
        try:
            save(optimizer)
        except KeyError:
            continue  # a later torch cannot step so
        assert "optimizer/exp_avg_sq/a" in says(look, path, "rule=%s " % rule, "maximize=0", "decoupled_weight_decay=0")
    save(torch.optim.Adamax([a, b, c]))
    says(look, path, "rule=adamax ")
    optimizer = save(torch.optim.AdamW([a, b, c]))
    says(look, path, "rule=adamw ")
    adam_or_adamw(look, path, save, [a, b, c])
    for key, value in (("optimizer", [1]), ("optimizer_states", [optimizer.state_dict()]), ("optimizer", {"a": 1})):
        torch.save({"model": model, key: value}, path)
        says(look, path, key, ": left")


def adam_or_adamw(look, path, save, params):
    """Which of them, where the file does not say it: by the order in which torch gives the keys of groups."""
    told, open_ = "as torch's gives its keys in that order", "is Adam or AdamW, the file does not say which"
    later = "decoupled_weight_decay" in torch.optim.Adam(params).param_groups[0]

    def older(optimizer, *keys):
        """As it goes on from a file of an older torch, which had not these keys."""
        state = optimizer.state_dict()
        for group in state["param_groups"]:
            for key in keys + ("foreach", "capturable", "differentiable", "fused", "decoupled_weight_decay"):
                group.pop(key, None)
        optimizer.load_state_dict(state)
        return optimizer

    for cls, rule in ((torch.optim.Adam, "adam"), (torch.optim.AdamW, "adamw")):
        def check(optimizer, wanted, *words):
            save(optimizer)
            says(look, path, "rule=%s " % wanted, *(() if later else words))
            again = cls(params)
            again.load_state_dict(optimizer.state_dict())
            save(again)
            says(look, path, "rule=%s " % wanted, *(() if later else words))

        clear = rule == "adamw" or cls(params).param_groups[0]["fused"] is False
        fresh = (rule, told) if clear or later else ("adam|adamw", open_)
        either = (rule,) if later else ("adam|adamw", open_)
        check(cls(params), *fresh)
        check(cls(params, weight_decay=0.5, amsgrad=True, maximize=True, foreach=False), *fresh)
        check(cls([{"params": params, "weight_decay": 0.5, "lr": 0.1}]), *fresh)
        optimizer = cls(params)
        torch.optim.lr_scheduler.StepLR(optimizer, 1)
        check(optimizer, *fresh)
        if rule == "adamw" or torch.__version__ >= "2":
            check(cls([{"params": params, "foreach": False}]), *either)
        check(cls([{"params": params, "foreach": False, "maximize": False, "capturable": False}]), *either)
        for keys in (("maximize",), ()):  # of 1.10 and 1.11
            if rule == "adamw" or torch.__version__ >= "2":
                check(older(cls(params), *keys), *either)
        if not later and torch.__version__ >= "2" and rule == "adam":
            check(cls(params, fused=False), "adam", told)


def main():
    look = sys.argv[1]
    torch.manual_seed(1)
    with tempfile.TemporaryDirectory() as folder:
        for test in (files_of_torch, unreadable_tensors, later_versions, attacks, foreign_objects, optimizers):
            test(look, folder)
            print("ok", test.__name__)


main()
