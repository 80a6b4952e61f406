#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/install/fortran.sh ROOT CMAKE BUILD COMPILER [MPIRUN]: a project in Fortran finds czero::fortran,
# and a Makefile czero-fortran; another compiler is told why it does not, and can compile the
# sources. The program and the commands of docs/fortran.md do what the page says.
set -eu
root=$1 cmake=$2 build=$3 compiler=$4 mpirun=${5:-}
here=$root/tests/install/fortran
work=$(mktemp -d) # outside the build folder: its name may hold a space, which .pc files cannot
trap 'rm -rf "$work"' EXIT
fail() { echo "$*"; exit 1; }

"$cmake" --install "$build" --prefix "$work/home/czero" >"$work/install.log"
HOME=$work/home
export HOME
pc=$(find "$HOME/czero" -name czero-fortran.pc)
PKG_CONFIG_PATH="${pc%/*}" LD_LIBRARY_PATH="${pc%/pkgconfig/*}"
export PKG_CONFIG_PATH LD_LIBRARY_PATH

configure() { # NAME OPTIONS…
    folder=$work/$1
    shift
    "$cmake" -G Ninja -S "$here" -B "$folder" -D CMAKE_PREFIX_PATH="$HOME/czero" -D CMAKE_Fortran_COMPILER="$compiler" \
        -D CMAKE_FIND_USE_PACKAGE_REGISTRY=OFF "$@" >"$work/log" 2>&1
}

# CMake, without MPI and with it.
{ configure alone && "$cmake" --build "$work/alone" >>"$work/log" 2>&1; } || { cat "$work/log"; fail "CMake: it does not build"; }
[ "$("$work/alone/program")" = "0.75" ] || fail "CMake: the program does not run"
if [ -n "$mpirun" ]; then
    { configure mpi -D WITH=mpi && "$cmake" --build "$work/mpi" >>"$work/log" 2>&1; } ||
        { cat "$work/log"; fail "CMake, MPI: it does not build"; }
    "$mpirun" -n 2 "$work/mpi/program" | grep -qx 'sum 2' || fail "CMake, MPI: the program does not run"
fi

# pkg-config, without MPI.
# shellcheck disable=SC2046
"$compiler" -o "$work/by_pc" "$here/main.f90" $(pkg-config --cflags --libs czero-fortran)
[ "$("$work/by_pc")" = "0.75" ] || fail "pkg-config: the program does not run"

# The page.
block() { # LANGUAGE WORD: the first fenced block in that language with that word
    awk -v fence="\`\`\`$1" -v word="$2" '
        inside && /^```$/ { if (index(text, word)) { printf "%s", text; exit } inside = 0; next }
        inside { text = text $0 "\n" }
        $0 == fence { inside = 1; text = "" }' "$root/docs/fortran.md"
}
mkdir "$work/page"
cd "$work/page"
block fortran 'program line' >line.f90
if [ -n "$mpirun" ]; then
    block sh mpifort >run.sh
    mkdir "$work/bin" # its mpirun is that of this MPI
    printf '#!/bin/sh\nexec "%s" "$@"\n' "$mpirun" >"$work/bin/mpirun"
    chmod +x "$work/bin/mpirun"
    sed "/^export/d" run.sh >commands.sh # they are set already
    PATH="$work/bin:$PATH" sh -eu commands.sh >printed 2>log || { cat log; fail "docs/fortran.md: it does not run"; }
    block text slope | diff -u - printed || fail "docs/fortran.md: - is what it says, + is printed"
fi
block sh 'for part in' >compile.sh
mkdir objects
(cd objects && sh -eu ../compile.sh) || fail "docs/fortran.md: the sources do not compile"
"$compiler" -o own "$here/main.f90" -I objects objects/[!m]*.o -L "$LD_LIBRARY_PATH" -lczero
[ "$(./own)" = "0.75" ] || fail "docs/fortran.md: what is made of the sources does not run"

# The modules are for another compiler.
config=$(find "$HOME/czero" -name czero-config.cmake)
modules=$(sed -n 's/.*STREQUAL "\(gfortran-[0-9]*\)".*/\1/p' "$config")
[ -d "$LD_LIBRARY_PATH/czero/$modules" ] || fail "there is no folder of modules '$modules'"
sed -i "s/$modules/gfortran-1/" "$config"
if configure other; then fail "CMake finds modules of another compiler"; fi
tr '\n' ' ' <"$work/log" | tr -s ' ' | grep -q "the Fortran modules are for gfortran-1, this project has $modules" ||
    { cat "$work/log"; fail "CMake does not say why"; }
