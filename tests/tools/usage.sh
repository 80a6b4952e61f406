#!/bin/sh
# SPDX-License-Identifier: MIT
# The command line of czero: help, versions, mistakes, and that each option of --help is in its man
# page.
. "$(dirname "$0")/common.sh"

code 0 "$czero" --version
has out "czero $(sed -n 's/^#define CZ_VERSION_MAJOR *//p' "$root/include/czero/version.h")."
has out "in use)"
has out "backends here: self, threads"
code 0 "$czero" --help
for command in inspect verify convert diff plan doctor bench; do
    has out "  $command "
done
code 2 "$czero"
has err "which command?"
code 2 "$czero" inpsect
has err "Did you mean 'inspect'?"
code 2 "$czero" zzzzzzzz
has err "'zzzzzzzz' is no command"
touch some.safetensors
code 2 "$czero" some.safetensors
has err "czero inspect 'some.safetensors'"
code 2 "$czero" inspect "$(printf 'no\033[31m')"
has err "no?[31m"
code 2 "$czero" --nonsense
code 2 "$czero" inspect --nonsense x
if [ -w /dev/full ]; then
    got=0
    "$czero" bench --only rules --elements 10 --rounds 1 >/dev/full 2>err || got=$?
    [ $got = 2 ] || fail "a full disk ends with $got"
    has err "the output cannot be written"
fi

# page NAME COMMAND…: *--option* of the help is in tools/NAME.1.scd
page() {
    name=$1
    shift
    "$@" --help >help
    for option in $(grep -oE -- '(^|[ ,])--?[a-zA-Z?][a-z-]*' help | tr -d ' ,' | sort -u); do
        grep -qF -- "*$option*" "$root/tools/$name.1.scd" || fail "$option of '$*' is not in $name(1)"
    done
}
page czero "$czero"
commands=$("$czero" --help | sed -n '/^ *Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p')
[ "$(echo "$commands" | wc -w)" -ge 5 ] || fail "commands: $commands"
for command in $commands; do
    page czero-$command "$czero" $command
    has "$root/tools/czero.1.scd" "*$command*"
    if command -v scdoc >/dev/null; then
        scdoc <"$root/tools/czero-$command.1.scd" >page.1 || fail "czero-$command.1.scd"
        grep -q '^\.TH' page.1
    fi
done
echo "usage: fine"
