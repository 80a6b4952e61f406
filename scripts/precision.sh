#!/bin/sh
# SPDX-License-Identifier: MIT
# scripts/precision.sh [STEPS [PROGRAM]]: the demo's training with values, gradients and state of
# several types, as the table of docs/precision.md: bytes of each parameter, time of a step of the
# optimizer, loss on held-out text.
set -eu
steps=${1:-600}
program=${2:-build/release/examples/12_gpt}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
number() { sed -n "s/^ *\"$1\": \([0-9.e+-]*\),*$/\1/p" "$work/run/summary.json" | head -1; }
state() { tr -d '\n ' <"$work/run/summary.json" | sed 's/.*"state_bytes_per_rank":\[\([0-9]*\).*/\1/'; }
row() { # WORDS OPTIONS…
    what=$1
    shift
    "$program" --ranks 1 --unsharded --steps "$steps" --sample 0 --quiet --out "$work/run" "$@" >/dev/null
    step=$(tr -d '\n ' <"$work/run/summary.json" | sed 's/.*"step":\([0-9.e+-]*\).*/\1/')
    [ -n "${elements:-}" ] || elements=$(($(number parameter_bytes) / 4))
    awk -v what="$what" -v n="$elements" -v values="$(number parameter_bytes)" -v state="$(state)" \
        -v step="$step" -v loss="$(number val_loss)" 'BEGIN {
        printf "| %s | %.0f | %.2f ms | %.4f |\n", what, (2 * values + state) / n, step * 1000, loss }'
}
printf '| values and gradients, state | bytes a parameter | step | loss after %s steps |\n' "$steps"
printf '|---|---|---|---|\n'
row 'f32'
row 'f32, moments in 8 bits' --bits 8
row 'bf16, masters' --dtype bf16
row 'f16, masters' --dtype f16
row 'bf16, masters, moments in bf16' --dtype bf16 --bits 16
row 'bf16, masters, moments in 8 bits' --dtype bf16 --bits 8
row 'bf16, no masters' --dtype bf16 --no-master
row 'f16, no masters' --dtype f16 --no-master
row 'bf16, no masters, moments in bf16' --dtype bf16 --no-master --bits 16
