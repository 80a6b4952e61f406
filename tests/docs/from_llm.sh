#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/docs/from_llm.sh ROOT COMPILER LIBRARY: the trainer that docs/from-llm.c.md ports learns as
# before, on any number of ranks, more than there are samples too; and is saved with its shapes.
. "$(dirname "$0")/port.sh"
compiler=$2 library=$3
command -v patch >/dev/null || { echo "no patch here"; exit 77; }

build() { # PROGRAM
    "$compiler" -std=c17 -O2 -Wall -Werror -I "$root/include" "$work/$1.c" -o "$work/$1" "$library" \
        -Wl,-rpath,"${library%/*}" -lm
}
cp "$root/tests/docs/trainer.c" "$work/before.c"
port from-llm.c.md "$work/before.c" "$work/after.c" 25
build before
build after
"$work/before" >"$work/wanted" 2>"$work/err"
for ranks in 1 2 3 30; do
    CZERO_RANKS=$ranks "$work/after" >"$work/found" 2>"$work/err" || fail "$ranks ranks: $(cat "$work/err")"
    same "$ranks ranks" "$work/wanted" "$work/found"
done
echo "from_llm: fine"
