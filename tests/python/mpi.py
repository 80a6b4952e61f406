# SPDX-License-Identifier: MIT
"""Run by mpi.sh on MPI processes: groups of the job and of mpi4py's communicators."""
import sys

import numpy as np

import czero


def body(group):
    assert group.info["backend"] == "mpi"
    weights, gradients = np.ones(100), np.full(100, float(group.rank))
    zero = czero.Zero(group, czero.Model({"weights": (weights, gradients)}), "sgd", lr=1.0)
    zero.step()
    assert (weights == 1 - (group.size - 1) / 2).all()
    return group.size


size, = czero.launch(body)
if "mpi4py" in sys.argv:
    from mpi4py import MPI
    comm = MPI.COMM_WORLD.Split(MPI.COMM_WORLD.rank % 2)
    with czero.Group.from_mpi4py(comm) as group:
        assert (group.rank, group.size) == (comm.rank, comm.size)
        x = np.ones(3)
        group.all_reduce(x)
        assert (x == comm.size).all()


def fail(group):
    if group.rank == 1:
        raise LookupError("this rank has no data")
    group.barrier()


if "fail" in sys.argv:
    czero.launch(fail)
# One write: where output is not buffered, the pieces of a print() mix with those of other ranks.
sys.stdout.write(f"passed {size}\n")
