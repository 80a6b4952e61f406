#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/install/cmake.sh CMAKE BUILD CC: install to a prefix with a space in its name, move it, then
# build and run a project that uses find_package(czero).
set -eu
cmake=$1 build=$2 cc=$3
here=$(cd "$(dirname "$0")" && pwd)
work=$build/tests/install/cmake
rm -rf "$work" && mkdir -p "$work"

"$cmake" --install "$build" --prefix "$work/first place" >"$work/install.log"
mv "$work/first place" "$work/a new place"

"$cmake" -G Ninja -S "$here/consumer" -B "$work/build" -D CMAKE_C_COMPILER="$cc" \
    -D CMAKE_PREFIX_PATH="$work/a new place" -D CMAKE_FIND_USE_PACKAGE_REGISTRY=OFF
"$cmake" --build "$work/build"
"$work/build/consumer"
[ ! -e "$work/build/consumer_static" ] || "$work/build/consumer_static"

# the czero command, and what the linker finds beside it, moved with the rest
tool="$work/a new place/bin/czero"
[ ! -e "$tool" ] || "$tool" --version

# nothing but the libraries and the command is installed
cd "$work/a new place"
find . -type f -o -type l | LC_ALL=C sort
odd=$(find . \( -type f -o -type l \) ! -path './include/czero/*.h' ! -path './include/czero/*.hpp' ! -name 'libczero.*' ! -name 'libczero-mpi-*.so' ! -name 'libczero-mpi-*.a' \
    ! -path '*/cmake/czero/czero-*.cmake' ! -path '*/pkgconfig/czero*.pc' ! -path './bin/czero' ! -path './share/man/man1/czero*.1' \
    ! -path './share/bash-completion/completions/czero' ! -name 'libczero-fortran.a' ! -path './share/czero/fortran/*.f90' \
    ! -path '*/czero/gfortran-*/czero*.mod')
[ -z "$odd" ] || { echo "installed, and should not be: $odd"; exit 1; }
# The build folder's name in the tree would tie it to this machine.
if grep -rlF "$build" include $(find . -name '*.cmake' -o -name '*.pc'); then
    echo "the files above name the build folder"
    exit 1
fi
