#!/bin/sh
# SPDX-License-Identifier: MIT
# tests/fortran/declarations.sh ROOT: what the Fortran modules say of functions and structs in C is
# what the headers say: results and arguments by their kinds, in their order, all fields by their
# names and kinds, and what named numbers are.
set -eu
cd "$1"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Of the headers, lines "function NAME RESULT KIND…" and "struct NAME FIELD:KIND…". Kinds: i4 i8 size
# f4 f8 bool; p a pointer, p:NAME one to a struct, pp one to a pointer, fp one to a function.
cat include/czero/*.h plugins/mpi/include/czero/mpi.h | awk '
function kind(type) {
    gsub(/const /, "", type); gsub(/ const/, "", type); gsub(/^ +| +$/, "", type); gsub(/ +/, " ", type)
    sub(/ \*/, "*", type)
    if (type ~ /\*.*\*/) return "pp"
    if (sub(/\*$/, "", type)) return type in structs ? "p:" type : "p"
    if (type in callbacks) return "fp"
    if (type ~ /^u?int64_t$/) return "i8"
    if (type == "size_t") return "size"
    if (type == "double") return "f8"
    if (type == "float") return "f4"
    if (type == "bool") return "bool"
    return "i4" # int, int32_t, enumerations
}
function declaration(text) { # into name, type and array
    array = sub(/\[[^]]*\]/, "", text)
    gsub(/^ +| +$/, "", text)
    match(text, /[A-Za-z0-9_]+$/)
    name = substr(text, RSTART)
    type = substr(text, 1, RSTART - 1)
}
function field() { return " " name ":" (kind(type) ~ /^p/ ? "p" : kind(type)) }
function print_struct(struct, body,    fields, several, n, m, k, j, of, out) {
    sub(/^[^{]*\{/, "", body)
    sub(/\}[^}]*$/, "", body)
    n = split(body, fields, ";")
    out = "struct " struct
    for (k = 1; k <= n; k++) {
        if (fields[k] ~ /^ *$/) continue
        if (match(fields[k], /\(\*[a-z_0-9]+\)/)) {
            out = out " " substr(fields[k], RSTART + 2, RLENGTH - 3) ":fp"
            continue
        }
        m = split(fields[k], several, ",") # size_t a, b;
        declaration(several[1])
        of = type
        out = out field()
        for (j = 2; j <= m; j++) {
            declaration(of " " several[j])
            out = out field()
        }
    }
    print out
}
function print_function(text,    arguments, parts, n, k, out) {
    arguments = substr(text, index(text, "(") + 1)
    sub(/\)[^)]*$/, "", arguments)
    declaration(substr(text, 1, index(text, "(") - 1))
    out = "function " name " " (type ~ /^ *void *$/ ? "void" : kind(type))
    n = split(arguments, parts, ",")
    for (k = 1; k <= n; k++) {
        if (parts[k] ~ /^ *void *$/) continue
        declaration(parts[k])
        out = out " " kind(type (array ? "*" : ""))
    }
    print out
}
/^#/ || macro { macro = /\\$/; next }
{
    line = $0
    while (inside || (begin = index(line, "/*"))) { # comments
        before = inside ? "" : substr(line, 1, begin - 1)
        rest = inside ? line : substr(line, begin + 2)
        inside = !match(rest, /\*\//)
        line = before (inside ? "" : " " substr(rest, RSTART + 2))
        if (inside) break
    }
    text = text " " line
    depth += gsub(/\{/, "{", line) - gsub(/\}/, "}", line)
    if (depth == 0 && line ~ /^ *\} *$/) { text = ""; next } # an inline function
    if (depth > 0 || line !~ /; *$/) next
    all[++count] = text
    text = ""
}
END {
    for (i = 1; i <= count; i++) {
        if (all[i] ~ /typedef struct [a-z_0-9]+ \{/) {
            match(all[i], /\} *[a-z_0-9]+ *;/)
            name = substr(all[i], RSTART + 1, RLENGTH - 2)
            gsub(/ /, "", name)
            structs[name] = all[i]
        } else if (match(all[i], /typedef [a-z_0-9]+ \(\*[a-z_0-9]+\)/)) {
            name = substr(all[i], RSTART, RLENGTH - 1)
            sub(/.*\*/, "", name)
            callbacks[name] = 1
        }
    }
    for (struct in structs) print_struct(struct, structs[struct])
    for (i = 1; i <= count; i++)
        if (match(all[i], /CZ_API .*\(/)) print_function(substr(all[i], RSTART + 7))
}' | LC_ALL=C sort >"$work/c"

# The same of what the modules say.
cat bindings/fortran/*.f90 | awk '
function kind(text,    by_value) {
    by_value = struct || text ~ /, *value/
    if (text ~ /type\(c_funptr\)/) return "fp"
    if (text ~ /type\(c_ptr\)/) return by_value ? "p" : "pp"
    if (match(text, /type\([a-z_0-9]+\)/)) return "p:" substr(text, RSTART + 5, RLENGTH - 6)
    if (!by_value) return "p"
    if (text ~ /c_int64_t/) return "i8"
    if (text ~ /c_size_t/) return "size"
    if (text ~ /c_double/) return "f8"
    if (text ~ /c_float/) return "f4"
    if (text ~ /c_bool/) return "bool"
    return "i4"
}
{ sub(/ *!.*$/, ""); sub(/^ */, "") }
sub(/ *&$/, " ") { held = held $0; next }
{ $0 = held $0; held = "" }

/(function|subroutine) .*bind\(C, name=.cz_/ {
    match($0, /name=.cz_[a-z_0-9]+/)
    out = "function " substr($0, RSTART + 6, RLENGTH - 6)
    gives = "void"
    if (/function/) gives = kind(substr($0, 1, index($0, "function")) ", value")
    match($0, /(function|subroutine) [a-z_0-9]+\([^)]*\)/)
    dummies = substr($0, RSTART, RLENGTH - 1)
    sub(/.*\(/, "", dummies)
    gsub(/ /, "", dummies)
    inside = 1
    next
}
/^end (function|subroutine)/ && inside {
    out = out " " gives
    n = split(dummies, list, ",")
    for (k = 1; k <= n; k++) out = out " " kinds[list[k]]
    print out
    inside = 0
    next
}
/^type, bind\(C\) :: / { out = "struct " $NF; struct = 1; next }
/^end type/ && struct { print out; struct = 0; next }
/ :: / && (inside || struct) {
    split($0, halves, " :: ")
    gsub(/\([^)]*\)|=[^,]*| /, "", halves[2])
    n = split(halves[2], list, ",")
    for (k = 1; k <= n; k++) {
        kinds[list[k]] = kind(halves[1])
        if (struct) out = out " " list[k] ":" kind(halves[1])
    }
}' | LC_ALL=C sort -u >"$work/fortran"

# Named numbers.
grep -ohE '\bCZ_[A-Z0-9_]+ = -?[0-9]+' bindings/fortran/*.f90 | LC_ALL=C sort -u >"$work/numbers"
cat include/czero/*.h | sed -nE 's/^#define (CZ_[A-Z_]+) \(?(-?[0-9]+)\)?$/\1 = \2/p; s/.*\b(CZ_[A-Z0-9_]+ = -?[0-9]+).*/\1/p' |
    LC_ALL=C sort -u | LC_ALL=C comm -13 - "$work/numbers" >"$work/others"
[ "$(wc -l <"$work/numbers")" -gt 50 ] || { echo "few named numbers were found"; exit 1; }
[ ! -s "$work/others" ] || { echo "the headers have other numbers, or none, for"; cat "$work/others"; exit 1; }

# A pointer to a struct may be an address in Fortran, and so may one to a pointer.
awk '
function plain(name) { sub(/^(cz|c)_/, "", name); return name }
function fits(c, fortran) {
    if (c == fortran || fortran == "p" && c ~ /^p/) return 1
    return c ~ /^p:/ && fortran ~ /^p:/ && plain(substr(c, 3)) == plain(substr(fortran, 3))
}
FNR == NR { c[$1 " " plain($2)] = $0; next }
{
    checked[$1]++
    n = split(c[$1 " " plain($2)], theirs, " ")
    good = n == NF
    for (i = 3; i <= n && good; i++) good = fits(theirs[i], $i)
    if (good) next
    print "C:       " c[$1 " " plain($2)]
    print "Fortran: " $0
    bad = 1
}
END {
    print checked["function"] + 0, "functions and", checked["struct"] + 0, "structs"
    exit bad || checked["function"] < 100 || checked["struct"] < 25
}' "$work/c" "$work/fortran"
