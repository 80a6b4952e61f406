#!/bin/sh
# SPDX-License-Identifier: MIT
# Completion in bash, as it is called by bash: words in, proposals out.
. "$(dirname "$0")/common.sh"
command -v bash >/dev/null || { echo "no bash here"; exit 77; }

# proposals WORD…: for the last of them
proposals() {
    bash -c '
        . "$0/tools/completion.bash"
        COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
        _czero
        printf "%s\n" "${COMPREPLY[@]}"' "$root" "$czero" "$@" >out
}

# proposed WORD: is one of them
proposed() {
    grep -qxF -- "$1" out || { cat out >&2; fail "'$1' is not proposed"; }
}

proposals ""
for command in inspect verify convert diff bench; do
    proposed $command
done
proposals ins
proposed inspect
[ "$(wc -l <out)" = 1 ] || fail "more than inspect for 'ins'"
proposals convert --
proposed --ranks
proposed --max-file-size
proposals convert --re
proposed --rename
proposed --reshape
proposals convert --s
proposed --strip-prefix
proposed --split
touch rules.json
proposals convert ck model --reshape ru
proposed rules.json
proposals convert --par
proposed --parameters-only
proposals convert --format ""
proposed safetensors
proposals convert --rule ada
proposed adamw
proposed adagrad
proposals plan --rule ""
proposed sgd
proposals bench --only c
proposed collectives
proposals --ver
proposed --version
touch checkpoint.file
proposals inspect check
proposed checkpoint.file
echo "completion: fine"
