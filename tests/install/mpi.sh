#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/install/mpi.sh CMAKE BUILD MPIRUN: a project in C, in C++ or in Fortran alone finds czero::mpi, and so does a
# Makefile by pkg-config, which knows no MPI; what they build runs on two processes.
set -eu
cmake=$1 build=$2 mpirun=$3
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0

"$cmake" --install "$build" --prefix "$work/prefix" >"$work/install.log"

runs() { # WHAT PROGRAM
    "$mpirun" -n 2 "$2" >"$work/output" 2>&1 && grep -q '^sum 2$' "$work/output" ||
        { echo "$1: the program does not run:"; cat "$work/output"; status=1; }
}

for pair in C:cc CXX:c++ Fortran:gfortran; do
    language=${pair%:*}
    command -v "${pair#*:}" >/dev/null || { echo "no compiler for $language here"; continue; }
    if "$cmake" -G Ninja -S "$here/mpi" -B "$work/$language" -D LANGUAGE="$language" -D CMAKE_PREFIX_PATH="$work/prefix" \
        -D CMAKE_FIND_USE_PACKAGE_REGISTRY=OFF >"$work/log" 2>&1 && "$cmake" --build "$work/$language" >>"$work/log" 2>&1; then
        runs "CMake, $language" "$work/$language/program"
        for name in program_static launched_static; do # one library in the process, which is the program's
            [ -e "$work/$language/$name" ] || continue
            runs "CMake, $name" "$work/$language/$name"
            ! ldd "$work/$language/$name" | grep czero || { echo "$name loads the library as well"; status=1; }
        done
    else
        echo "CMake, $language: it does not build:"; cat "$work/log"; status=1
    fi
done

pc=$(find "$work/prefix" -name czero-mpi.pc)
export PKG_CONFIG_PATH="" PKG_CONFIG_LIBDIR="${pc%/*}" LD_LIBRARY_PATH="${pc%/pkgconfig/*}"
# shellcheck disable=SC2046
if cc "$here/mpi/main.c" -o "$work/by_c" $(pkg-config --cflags --libs czero-mpi) &&
    c++ -std=c++17 "$here/mpi/main.cpp" -o "$work/by_cpp" $(pkg-config --cflags --libs czero-mpi); then
    runs "pkg-config, C" "$work/by_c"
    runs "pkg-config, C++" "$work/by_cpp"
else
    echo "pkg-config: they do not build"; status=1
fi
exit $status
