#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""folders.py CZERO: folders of torch.distributed.checkpoint from processes of torch to czero and back: the same bits. With torch
1.13, whose classes have another module's name, and with later ones, whose FSDP2 trains. Exit 77: there is no torch here."""
import dataclasses
import os
import pickle
import subprocess
import sys
import tempfile
import warnings

try:
    import torch
    import torch.distributed as dist
except ImportError:
    print("no torch here")
    sys.exit(77)

warnings.filterwarnings("ignore")
torch.set_num_threads(1)
LATER = torch.__version__ >= "2"
if LATER:
    import torch.distributed.checkpoint as dcp
else:
    # In Python 3.11 defaults of dataclasses must be hashable, and one of torch 1.13's is not.
    plain = dataclasses.dataclass

    def hashable(cls=None, **how):
        if cls is None:
            return lambda later: hashable(later, **how)
        return plain(cls, **how, **({} if "__hash__" in vars(cls) else {"unsafe_hash": True}))

    dataclasses.dataclass = hashable
    import torch.distributed._shard.checkpoint as dcp
    dataclasses.dataclass = plain
    from torch.distributed._shard import sharded_tensor
    from torch.distributed._shard.metadata import ShardMetadata

CZERO = sys.argv[1]


def czero(*words):
    done = subprocess.run((CZERO,) + words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


def same(got, wanted, what):
    assert list(got) == list(wanted) or set(got) == set(wanted), (what, list(got), list(wanted))
    for name, tensor in wanted.items():
        if torch.is_tensor(tensor) and tensor.dtype == torch.bool:  # bytes, here
            tensor = tensor.to(torch.uint8)
        value = torch.as_tensor(got[name])
        assert value.dtype == torch.as_tensor(tensor).dtype and torch.equal(value, torch.as_tensor(tensor)), (what, name)


def ranks(world, body, *arguments):
    """body(rank, world, *arguments) in so many processes."""
    children = []
    for rank in range(world):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                torch.set_num_threads(1)  # its pool does not live through fork(): here, before threads race for a new one
                store = "file://" + os.path.join(arguments[0], "store-%s-%d" % (body.__name__, world))
                dist.init_process_group("gloo", init_method=store, rank=rank, world_size=world)
                body(rank, world, *arguments)
                dist.destroy_process_group()
                code = 0
            except BaseException:
                import traceback
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                os._exit(code)
        children.append(child)
    for child in children:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0, body.__name__


def tensors():
    grid = torch.arange(63, dtype=torch.float32).reshape(7, 9) / 8
    return {"w": grid, "columns": grid.t().contiguous(), "bf16": torch.arange(6).to(torch.bfloat16),
            "f16": torch.ones(2, dtype=torch.float16), "f64": torch.arange(5, dtype=torch.float64), "i64": torch.arange(4),
            "scalar": torch.tensor(2.5), "empty": torch.zeros(0, 3), "flag": torch.tensor([True, False]),
            "turned": torch.arange(6.0).reshape(2, 3).t()}


# ---- torch 1.13 ----

def save_sharded(rank, world, folder):
    """Rows of one tensor and columns of another over the ranks; the rest is rank 0's."""
    state = tensors()
    for name, dim in (("w", 0), ("columns", 1)):
        parts = torch.tensor_split(state[name], world, dim)
        offsets = [0, 0]
        offsets[dim] = sum(part.shape[dim] for part in parts[:rank])
        local = parts[rank].contiguous()
        shard = sharded_tensor.Shard(local, ShardMetadata(shard_offsets=offsets, shard_sizes=list(local.shape),
                                                          placement="rank:%d/cpu" % rank))
        state[name] = sharded_tensor.init_from_local_shards([shard], list(state[name].shape))
    dcp.save_state_dict(state, dcp.FileSystemWriter(os.path.join(folder, "saved")))


class Renaming(pickle.Unpickler):
    """What later versions wrote, with the classes of 1.13."""

    def find_class(self, module, name):
        if module.startswith("torch.distributed.checkpoint"):
            module = module.replace("distributed.", "distributed._shard.")
        if name in ("TensorProperties", "_MEM_FORMAT_ENCODING"):
            module, name = "torch.distributed._shard.sharded_tensor.metadata", name.lstrip("_")
        return super().find_class(module, name)


class Reader(dcp.FileSystemReader):
    def read_metadata(self):
        with open(os.path.join(str(self.path), ".metadata"), "rb") as file:
            return Renaming(file).load()


def trip_of_1(folder):
    saved, back = os.path.join(folder, "saved"), os.path.join(folder, "back.dcp")
    ranks(2, save_sharded, folder)
    czero("verify", saved)
    czero("convert", saved, os.path.join(folder, "all.pt"))
    same(torch.load(os.path.join(folder, "all.pt")), tensors(), "of 1.13")
    czero("convert", saved, back)
    czero("diff", saved, back)
    state = {name: torch.full_like(tensor, 1) for name, tensor in tensors().items()}
    del state["flag"]  # which is u8 there
    dcp.load_state_dict(state, Reader(back), no_dist=True)
    wanted = tensors()
    del wanted["flag"]
    same(state, wanted, "back in 1.13")


# ---- later ones: FSDP2 ----

def trained(world):
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import init_device_mesh
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.BatchNorm1d(7), torch.nn.Linear(7, 3))
    fully_shard(model, mesh=init_device_mesh("cpu", (world,)))
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def full(state):
    return {k: v.full_tensor() if hasattr(v, "full_tensor") else v for k, v in state.items()}


def whole(model, optimizer):
    from torch.distributed.checkpoint.state_dict import get_state_dict
    values, state = get_state_dict(model, optimizer)
    return {"model": full(values), "state": {k: full(v) for k, v in state["state"].items()},
            "groups": state["param_groups"]}


def save_fsdp(rank, world, folder):
    from torch.distributed.checkpoint.state_dict import get_state_dict, StateDictOptions
    from torch.distributed.tensor import distribute_tensor, init_device_mesh, Shard
    model, optimizer = trained(world)
    for step in range(3):
        torch.manual_seed(step)
        model(torch.randn(4, 5)).pow(2).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    values, state = get_state_dict(model, optimizer)
    dcp.save({"model": values, "optimizer": state, "epoch": 3}, checkpoint_id=os.path.join(folder, "fsdp"))
    values, state = get_state_dict(model, optimizer, options=StateDictOptions(flatten_optimizer_state_dict=True))
    dcp.save({"app": {"model": values, "optim": state}}, checkpoint_id=os.path.join(folder, "flat"))
    all_of_it = whole(model, optimizer)
    if rank == 0:
        torch.save(all_of_it, os.path.join(folder, "wanted"))
    state, mesh = tensors(), init_device_mesh("cpu", (world,))
    state["w"] = distribute_tensor(state["w"], mesh, [Shard(0)])
    state["columns"] = distribute_tensor(state["columns"], mesh, [Shard(1)])
    if world == 4:
        state["f64"] = distribute_tensor(torch.arange(35, dtype=torch.float64).reshape(5, 7), init_device_mesh("cpu", (2, 2)),
                                         [Shard(0), Shard(1)])
    dcp.save(state, checkpoint_id=os.path.join(folder, "mixed"))


def load_fsdp(rank, world, folder, path):
    from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
    model, optimizer = trained(world)
    for parameter in model.parameters():
        parameter.data.zero_()
    values, state = get_state_dict(model, optimizer)
    dcp.load({"model": values, "optimizer": state}, checkpoint_id=path)
    set_state_dict(model, optimizer, model_state_dict=values, optim_state_dict=state)
    got, wanted = whole(model, optimizer), torch.load(os.path.join(folder, "wanted"), weights_only=False)
    same(got["model"], wanted["model"], "back in FSDP2")
    for name, entry in wanted["state"].items():
        same(got["state"][name], entry, "back in FSDP2: %s" % name)
    assert got["groups"] == wanted["groups"], (got["groups"], wanted["groups"])


def trip_of_fsdp(folder, world):
    wanted = None
    ranks(world, save_fsdp, folder)
    wanted = torch.load(os.path.join(folder, "wanted"), weights_only=False)
    for name in ("fsdp", "flat"):
        path, sharded = os.path.join(folder, name), os.path.join(folder, name + "-of-2")
        back = os.path.join(folder, name + ".dcp")
        czero("verify", path)
        czero("convert", path, sharded, "--ranks", "2")
        czero("convert", sharded, back)
        czero("diff", path, back)
        czero("convert", back, back + ".pt")
        file = torch.load(back + ".pt", weights_only=True)
        same(file["model"], wanted["model"], name)
        for number, parameter in enumerate(file["czero"]["params"]):
            same(file["optimizer"]["state"][number], wanted["state"][parameter], parameter)
        for readers in (1, 2) if name == "fsdp" else ():
            ranks(readers, load_fsdp, folder, back)
    czero("convert", os.path.join(folder, "mixed"), os.path.join(folder, "mixed.pt"))
    mixed = tensors()
    if world == 4:
        mixed["f64"] = torch.arange(35, dtype=torch.float64).reshape(5, 7)
    same(torch.load(os.path.join(folder, "mixed.pt")), mixed, "mixed")


# ---- a folder that a later version wrote, wherever this runs ----

def golden(folder):
    """That of torch 2.15 with 3 processes: {"model": {"w": rows, "c": columns}, "optimizer": …} of numbers from 0 on, which
    --golden made."""
    here = os.path.dirname(os.path.abspath(__file__))
    path, out = os.path.join(here, "..", "..", "golden", "fsdp2.dcp"), os.path.join(folder, "golden.pt")
    czero("verify", path)
    czero("convert", path, out)
    file = torch.load(out)
    w, c = torch.arange(35, dtype=torch.float32).reshape(7, 5), torch.arange(8).reshape(2, 4).to(torch.bfloat16)
    same(file["model"], {"w": w, "c": c}, "of 2.15")
    assert file["czero"]["params"] == ["w"] and file["czero"]["rule"] == "adamw", file["czero"]
    state, group = file["optimizer"]["state"][0], file["optimizer"]["param_groups"][0]
    same(state, {"step": torch.tensor(5.0), "exp_avg": w / 2, "exp_avg_sq": w / 4}, "state of 2.15")
    assert group["lr"] == 0.125 and group["betas"] == (0.5, 0.75), group


def save_golden(rank, world, folder):
    from torch.distributed.tensor import distribute_tensor, init_device_mesh, Shard
    mesh, w = init_device_mesh("cpu", (world,)), torch.arange(35, dtype=torch.float32).reshape(7, 5)
    rows = [distribute_tensor(w / k, mesh, [Shard(0)]) for k in (1, 2, 4)]
    c = distribute_tensor(torch.arange(8).reshape(2, 4).to(torch.bfloat16), mesh, [Shard(1)])
    group = dict(torch.optim.AdamW([torch.zeros(1)], lr=0.125, betas=(0.5, 0.75)).param_groups[0], params=["w"])
    state = {"w": {"step": torch.tensor(5.0), "exp_avg": rows[1], "exp_avg_sq": rows[2]}}
    dcp.save({"model": {"w": rows[0], "c": c}, "optimizer": {"state": state, "param_groups": [group]}},
             checkpoint_id=os.path.join(folder, "fsdp2.dcp"))


def main():
    with tempfile.TemporaryDirectory() as folder:
        if sys.argv[2:] == ["--golden"]:
            ranks(3, save_golden, ".")
            return
        golden(folder)
        if not LATER:
            trip_of_1(folder)
    for world in (1, 3, 4) if LATER else ():
        with tempfile.TemporaryDirectory() as folder:
            trip_of_fsdp(folder, world)
    print("folders of torch", torch.__version__)


main()
