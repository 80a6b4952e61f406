#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/python/torch2.sh BUILD FOLDER: the Python tests, and folders of torch.distributed.checkpoint,
# with the newest PyTorch that pip finds, in a virtual environment in FOLDER, which is kept.
set -eu
build=$(cd "$1" && pwd)
folder=$2
here=$(cd "$(dirname "$0")" && pwd)
[ -x "$folder/bin/python" ] || /usr/bin/python3 -m venv "$folder"
"$folder/bin/python" -c 'import torch, numpy' 2>/dev/null ||
    "$folder/bin/python" -m pip install -q --disable-pip-version-check torch numpy mpi4py
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$here/../../bindings/python/src"
export CZERO_LIBRARY="$build/libczero.so" CZERO_TOOL="$build/tools/czero"
for test in core torch host docs; do
    "$folder/bin/python" -W ignore "$here/test_$test.py"
done
"$folder/bin/python" "$here/../checkpoint/torch/folders.py" "$CZERO_TOOL"
"$folder/bin/python" -c 'import torch; print("with PyTorch", torch.__version__)'
