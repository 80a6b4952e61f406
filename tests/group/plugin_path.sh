#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/group/plugin_path.sh CC ROOT LIBRARY: the mpi plugin is not taken from a folder that is
# relative to the present one, where anybody may have put one.
set -eu
cc=$1 root=$2 library=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/lib" "$work/elsewhere/lib" "$work/elsewhere/bin"
cp -L "$library" "$work/lib/libczero.so"
soname=$(readelf -d "$library" | sed -n 's/.*SONAME.*\[\(.*\)\].*/\1/p')
ln -sf libczero.so "$work/lib/$soname"

# A plugin of somebody else's, wherever it could be found by mistake.
cat > "$work/bad.c" <<'END'
#include <stdio.h>
__attribute__((constructor)) static void run(void) { puts("a plugin of somebody else's runs"); }
END
$cc -shared -fPIC -o "$work/bad.so" "$work/bad.c"
for folder in elsewhere elsewhere/lib elsewhere/bin; do
    cp "$work/bad.so" "$work/$folder/libczero-mpi-openmpi.so"
    cp "$work/bad.so" "$work/$folder/libczero-mpi-mpich.so"
done

cat > "$work/program.c" <<'END'
#include <czero/czero.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    cz_group *group;
    if (argc > 1 && chdir(argv[1]) != 0)
        return 2;
    const cz_status status = cz_group_create_world(&group, "mpi", true, NULL);
    printf("%s: %s\n", cz_status_name(status), cz_last_error());
    return status == CZ_OK;
}
END
mkdir -p "$work/bin"
$cc -std=gnu11 -I "$root/include" -o "$work/bin/program" "$work/program.c" -L "$work/lib" -lczero

expect() { # WHAT PATTERN OUTPUT
    case $3 in *"somebody else"*) echo "$1: $3"; exit 1 ;; esac
    case $3 in *"$2"*) ;; *) echo "$1: $3"; exit 1 ;; esac
}
unset CZERO_PLUGIN_PATH CZERO_BACKEND
cd "$work"
expect "a relative library path" CZERO_PLUGIN_PATH "$(LD_LIBRARY_PATH=lib bin/program elsewhere 2>&1)"
expect "the present folder in the library path" CZERO_PLUGIN_PATH \
    "$(LD_LIBRARY_PATH=$work/lib:. bin/program elsewhere 2>&1)"
expect "an empty entry of it" CZERO_PLUGIN_PATH "$(LD_LIBRARY_PATH=$work/lib: bin/program elsewhere 2>&1)"
expect "a relative CZERO_PLUGIN_PATH" "absolute" \
    "$(CZERO_PLUGIN_PATH=lib LD_LIBRARY_PATH=$work/lib bin/program elsewhere 2>&1)"
expect "the folder is named" "$work/lib" "$(LD_LIBRARY_PATH=lib bin/program elsewhere 2>&1)"

# What is no plugin is named with its folder.
mkdir empty
echo 'int nothing;' >empty.c
$cc -shared -fPIC -o empty/libczero-mpi-openmpi.so empty.c
cp empty/libczero-mpi-openmpi.so empty/libczero-mpi-mpich.so
expect "another version's plugin" "$work/empty/libczero-mpi-" \
    "$(CZERO_PLUGIN_PATH=$work/empty LD_LIBRARY_PATH=$work/lib bin/program elsewhere 2>&1)"

# The library is part of the program, so nothing beside it says where plugins are: the sentence says
# what to do.
static=$(dirname "$library")/libczero.a
if [ -e "$static" ] && libraries=$(pkg-config --libs jansson libxxhash libzip 2>/dev/null) &&
    $cc -std=gnu11 -I "$root/include" -o "$work/bin/static" "$work/program.c" "$static" $libraries -lm -pthread \
        2>/dev/null; then
    said=$(bin/static elsewhere 2>&1)
    expect "a static link" "linked in statically" "$said"
    expect "a static link" "-rdynamic, and then set CZERO_PLUGIN_PATH" "$said"
fi
echo "no plugin was taken from the present folder"
