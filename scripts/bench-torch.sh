#!/bin/sh
# SPDX-License-Identifier: MIT
# scripts/bench-torch.sh BUILD OUT [ROUNDS [STEPS [WIDTH [LAYERS]]]]: a training with PyTorch's
# ZeroRedundancyOptimizer and, with one import changed, with czero's, in turns: with Debian's PyTorch,
# and with that in build/torch2 if `make test-torch2` has put one there.
set -eu
build=$(cd "$1" && pwd)
out=$2
shift 2
here=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$out"
export PYTHONDONTWRITEBYTECODE=1 PYTHONPATH="$here/bindings/python/src" CZERO_LIBRARY="$build/libczero.so"
for python in ${PYTHON:-/usr/bin/python3 "$here/build/torch2/bin/python"}; do
    version=$("$python" -c 'import torch; print(torch.__version__.split("+")[0])' 2>/dev/null) || {
        echo "skipped: no PyTorch for $python"
        continue
    }
    "$python" "$here/bench/torch/compare.py" "$out/torch-$version.json" "$@"
    "$python" "$here/bench/torch/host.py" "$out/host-$version.json"
done
