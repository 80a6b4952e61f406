#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/docs/known_faults.sh ROOT BUILD: every test that docs/known-faults.md and docs/security.md
# name exists: functions (`test_…`) are registered in the file named before them in the same cell,
# others are tests of CTest.
set -eu
cd "$1"
all=$(mktemp)
trap 'rm -f "$all"' EXIT
ctest --test-dir "$2" -N -C nightly | sed -n 's/^ *Test *#[0-9]*: //p' >"$all"
failed=0
names=0
for page in docs/known-faults.md docs/security.md; do
    [ -f $page ] || continue
    # The last cell of each row of a table, one name a line.
    awk -F ' *[|] *' '/^\|/ && !/^\|-/ && $(NF - 1) != "test" { print $(NF - 1) }' $page |
        grep -o '`[^`]*`' | tr -d '`' | {
        file=
        while read -r name; do
            names=$((names + 1))
            case $name in
            *.c | *.sh | *.py)
                file=$name
                [ -f "$file" ] || { echo "$page: there is no $file"; failed=1; }
                ;;
            test_*)
                # Defined and registered, or made by the macros CASE or TEST.
                [ "$(grep -csw -e "$name" "$file")" -ge 2 ] || grep -qsE "(CASE|TEST)\(${name#test_}\)" "$file" ||
                    { echo "$page: $file has no test $name"; failed=1; }
                ;;
            */*)
                grep -qE "^$name(@|$)" "$all" || { echo "$page: CTest has no test $name"; failed=1; }
                ;;
            esac
        done
        echo "$page: $names names"
        [ $names -gt 0 ] && exit $failed
    } || failed=1
done
exit $failed
