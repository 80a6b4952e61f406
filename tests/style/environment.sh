#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/style/environment.sh ROOT: the CZERO_… variables that src/, plugins/ and bindings/ read are
# those in the table of docs/environment.md.
set -eu
cd "$1"
[ -f docs/environment.md ] || { echo "docs/environment.md is missing"; exit 1; }

# A name is a string of its own in the source, and a word in the first cell of a row in the table.
read_by_src=$(find src plugins bindings -name '*.[ch]' -o -name '*.py' | xargs grep -ho '"CZERO_[A-Z0-9_]*"' | tr -d '"' |
    LC_ALL=C sort -u)
in_table=$(sed -n 's/^| *\([^|]*\)|.*/\1/p' docs/environment.md | grep -o 'CZERO_[A-Z0-9_]*' |
    LC_ALL=C sort -u)

status=0
for name in $read_by_src; do
    case " $(echo $in_table) " in *" $name "*) continue ;; esac
    echo "$name is read in src/, plugins/ or bindings/ and is not in the table of docs/environment.md"
    status=1
done
for name in $in_table; do
    case " $(echo $read_by_src) " in *" $name "*) continue ;; esac
    echo "$name is in the table of docs/environment.md and nothing in src/, plugins/ or bindings/ reads it"
    status=1
done
[ $status = 0 ] && echo "documented and read:" $read_by_src
exit $status
