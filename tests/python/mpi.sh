#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/python/mpi.sh PYTHON MPIRUN…: the package on MPI processes, with mpi4py if it is there; and
# a rank that raises ends the job with its traceback. 77 (skipped) without NumPy.
set -eu
python=$1
shift
here=$(cd "$(dirname "$0")" && pwd)
"$python" -c 'import numpy' 2>/dev/null || { echo "skipped: $python has no numpy"; exit 77; }
with=
if "$python" -c 'import mpi4py' 2>/dev/null; then with=mpi4py; else echo "without mpi4py"; fi
out=$(mktemp)
trap 'rm -f "$out"' EXIT
"$@" -n 3 "$python" "$here/mpi.py" $with >"$out" 2>&1 || { cat "$out"; exit 1; }
[ "$(grep -c 'passed 3' "$out")" = 3 ] || { cat "$out"; echo "not all ranks passed"; exit 1; }
if "$@" -n 2 "$python" "$here/mpi.py" fail >"$out" 2>&1; then
    cat "$out"
    echo "a job ended well in which a rank raised"
    exit 1
fi
grep -q 'LookupError: this rank has no data' "$out" || { cat "$out"; echo "without its traceback"; exit 1; }
