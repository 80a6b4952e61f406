#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/install/pkgconfig.sh CMAKE BUILD CC: install under DESTDIR, move the tree, then build and
# run a program with the flags that pkg-config gives, against the shared and the static library.
set -eu
cmake=$1 build=$2 cc=$3
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d) # outside the build folder: its name may hold a space, which .pc files cannot
trap 'rm -rf "$work"' EXIT

DESTDIR="$work/stage" "$cmake" --install "$build" --prefix /opt/czero >"$work/install.log"
mv "$work/stage/opt/czero" "$work/moved"
pc=$(find "$work/moved" -name czero.pc)
unset PKG_CONFIG_SYSROOT_DIR
export PKG_CONFIG_PATH="${pc%/*}"
libdir=$(pkg-config --variable=libdir czero)
version=$(pkg-config --modversion czero)
export LD_LIBRARY_PATH="$libdir"

# build NAME OPTIONS…
build() {
    name=$1
    shift
    # shellcheck disable=SC2046
    "$cc" -std=c17 "$here/consumer/main.c" -o "$work/$name" $(pkg-config "$@" czero)
    "$work/$name" | tee "$work/output"
    grep -q "running $version\$" "$work/output"
}

build shared --cflags --libs
if [ -e "$libdir/libczero.a" ]; then
    rm -f "$libdir"/libczero.so*
    build static --static --cflags --libs
fi
