# SPDX-License-Identifier: MIT
# What the tests of the czero command have in common: sh TEST.sh CZERO JOB [ROOT]
set -eu
czero=$1 job=$2 root=${3:-}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

# code WANTED COMMAND…: it ends with that code; output in ./out, errors in ./err
code() {
    wanted=$1
    shift
    got=0
    "$@" >out 2>err || got=$?
    [ "$got" = "$wanted" ] || { cat out err >&2; fail "'$*' ended with $got, wanted $wanted"; }
}

# has FILE TEXT: some line of it has this
has() {
    grep -qF -- "$2" "$1" || { cat "$1" >&2; fail "no line of $1 has '$2'"; }
}

hasnt() {
    ! grep -qF -- "$2" "$1" || { cat "$1" >&2; fail "a line of $1 has '$2'"; }
}

# json WANTED KEY…: of ./out
json() {
    want=$1
    shift
    value=$("$job" json "$@" <out) || { cat out >&2; fail "no JSON with $*"; }
    [ "$value" = "$want" ] || { cat out >&2; fail "$* is $value, wanted $want"; }
}

# safetensors FILE HEADER BYTES: a file with this header (of less than 256 characters) and so many
# zeros
safetensors() {
    printf '%b' "$(printf '\\0%o' ${#2})\\0000\\0000\\0000\\0000\\0000\\0000\\0000" >"$1"
    printf '%s' "$2" >>"$1"
    head -c "$3" /dev/zero >>"$1"
}
