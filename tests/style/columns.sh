#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/style/columns.sh ROOT: no line of C, C++ or Fortran has more than 100 columns, comments included, and
# none is torn after its type because a comment stands behind it: that belongs above.
set -eu
cd "$1"
files() {
    find src include plugins bindings tools examples bench tests -name "*.[ch]" -o -name "*.[ch]pp" -o -name "*.f90" |
        LC_ALL=C sort
}
bad=0
if files | LC_ALL=C.UTF-8 xargs grep -nE '^.{101,}$'; then
    echo "columns.sh: the lines above have more than 100 columns"
    bad=1
fi
files | xargs awk '
    FNR > 1 && /^ +\**[a-z_0-9]+(\[[^]]*\])*;/ && last ~ /^ *(const |static |extern |unsigned |struct )*[a-z_0-9]+( const)?$/ &&
        last !~ /^ *(else|do)$/ { print FILENAME ":" FNR ":" $0; bad = 1 }
    { last = $0 }
    END { exit bad }' || { echo "columns.sh: the declarations above are torn: put their comments above them"; bad=1; }
[ $bad = 0 ] && echo "$(files | wc -l) files"
exit $bad
