#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/python/wheel.sh ROOT PYTHON TEST…: the package that pip builds from the clone, in a virtual
# environment of its own and far from the clone, passes these tests; its command and its MPI plugin
# work. 77 (skipped) where pip or its build back-end cannot be had.
set -eu
root=$1 python=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset CZERO_LIBRARY CZERO_TOOL PYTHONPATH

"$python" -m venv --system-site-packages "$work/env" >"$work/log" 2>&1 ||
    { cat "$work/log"; echo "skipped: $python makes no virtual environment (python3-venv)"; exit 77; }
pip="$work/env/bin/python -m pip --disable-pip-version-check"
# shellcheck disable=SC2086
$pip download -q --no-deps -d "$work/found" 'scikit-build-core>=0.10' >"$work/log" 2>&1 ||
    { cat "$work/log"; echo "skipped: no scikit-build-core to be had"; exit 77; }
# shellcheck disable=SC2086
$pip wheel -q --no-deps --config-settings "build-dir=$work/build" \
    --config-settings cmake.build-type=Debug -w "$work" "$root/bindings/python"
ls "$work"/czero-*-py3-none-*.whl # for every version of Python
# shellcheck disable=SC2086
$pip install -q --no-index --no-deps "$work"/czero-*.whl

cd "$work"
for test; do
    echo "== $test"
    "$work/env/bin/python" "$test"
done
"$work/env/bin/python" -m czero --version
"$work/env/bin/czero" --version >/dev/null
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 \
    OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
if command -v mpirun.openmpi >/dev/null; then
    mpirun.openmpi -n 2 "$work/env/bin/python" -c '
import czero
assert czero.launch(lambda group: (group.size, group.info["backend"])) == [(2, "mpi")]'
fi
