#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/abi/symbols.sh [--update] LIBRARY: what the shared library exports is tests/abi/symbols.txt.
set -eu
export LC_ALL=C
list=$(dirname "$0")/symbols.txt
update=no
[ "$1" = --update ] && { update=yes; shift; }

found=$(mktemp)
trap 'rm -f "$found"' EXIT
nm -D --defined-only "$1" | awk '{print $NF}' |
    grep -vxE '_init|_fini|_edata|_end|__bss_start' | sort >"$found" || true

if grep -vE '^cz_[a-z]' "$found"; then
    echo "the names above are exported and do not begin with cz_: public names do, and no other" \
         "is to be visible (CZ_API on something internal?)"
    exit 1
fi
[ -e "$list" ] || [ $update = no ] || : >"$list"
# As many as one learns in a day: a function that comes takes the place of another. (The core has 250;
# what new parts brought: cz_optim_evaluate(), cz_zero_evaluate(), and see CHANGELOG.md.)
most=253
if [ "$(wc -l <"$found")" -gt $most ]; then
    echo "$(wc -l <"$found") functions are exported, $most are allowed: what can go, or be said by another one?"
    exit 1
fi

if cmp "$list" "$found" >/dev/null 2>&1; then
    echo "$(wc -l <"$found") symbols, as listed"
    exit
fi
diff -U0 "$list" "$found" | grep '^[-+]cz' || true
if [ $update = yes ]; then
    cat "$found" >"$list"
    exit
fi
echo "+ is exported and not listed, - is listed and not exported. If that is meant: make abi-update"
exit 1
