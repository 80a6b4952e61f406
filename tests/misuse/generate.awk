# SPDX-License-Identifier: MIT
# Writes misuse_calls.h: for every public function a call whose arguments come from fixtures.h, each
# of them valid or spoiled in one way, and a table of all of them.
#
#     awk [-v only=czero/mpi.h] -f generate.awk fixtures.h… HEADER… > misuse_calls.h
#
# `only`: the header whose functions are called; others say what types there are. Enumerations and
# structs are spoiled by what their declarations say. Any other type of an argument needs a FIXTURE
# in fixtures.h; without one this ends with a sentence that says so, and 1.

function trim(text)
{
    gsub(/[ \t]+/, " ", text)
    sub(/^ /, "", text)
    sub(/ $/, "", text)
    return text
}

# "const cz_model *" becomes const_cz_model_p, the end of the names of its fixture's functions.
function word_of(type)
{
    gsub(/\*/, " p ", type)
    type = trim(type)
    gsub(/ /, "_", type)
    while (gsub(/_p_p/, "_pp", type))
        ;
    return type
}

function strip_comments(line,    begin, rest)
{
    if (in_comment) {
        if (!match(line, /\*\//))
            return ""
        line = substr(line, RSTART + 2)
        in_comment = 0
    }
    while ((begin = index(line, "/*")) > 0) {
        rest = substr(line, begin + 2)
        if (!match(rest, /\*\//)) {
            in_comment = 1
            return substr(line, 1, begin - 1)
        }
        line = substr(line, 1, begin - 1) " " substr(rest, RSTART + 2)
    }
    return line
}

# "TYPE NAME" or "TYPE NAME[N]" into the globals `type`, that of an element, `name` and `is_array`.
function split_declaration(text)
{
    text = trim(text)
    is_array = sub(/\[[^]]*\]$/, "", text)
    match(text, /[A-Za-z0-9_]+$/)
    name = substr(text, RSTART)
    type = trim(substr(text, 1, RSTART - 1))
}

function add_function(text,    open, arguments, parts, count, i)
{
    if (only != "" && index(FILENAME, only) == 0)
        return
    sub(/^.*CZ_API /, "", text)
    sub(/ CZ_PRINTF.*$/, "", text)
    open = index(text, "(")
    arguments = substr(text, open + 1)
    sub(/\)[^)]*$/, "", arguments)
    split_declaration(substr(text, 1, open - 1))
    function_name[++functions] = name
    function_type[functions] = type
    count = split(arguments, parts, ",")
    for (i = 1; i <= count; i++) {
        if (trim(parts[i]) == "...")
            takes_more[functions] = 1
        if (trim(parts[i]) == "void" || trim(parts[i]) == "...")
            continue
        split_declaration(parts[i])
        argument_count[functions]++
        argument_type[functions, i] = type (is_array ? " *" : "")
        argument_name[functions, i] = name
    }
}

function add_enum(text,    parts, count, i, value, pair)
{
    match(text, /} *[A-Za-z0-9_]+/)
    name = substr(text, RSTART + 1, RLENGTH - 1)
    gsub(/ /, "", name)
    sub(/^[^{]*{/, "", text)
    sub(/}.*$/, "", text)
    count = split(text, parts, ",")
    value = -1
    for (i = 1; i <= count; i++) {
        if (trim(parts[i]) == "")
            continue
        value = value + 1
        if (split(parts[i], pair, "=") == 2)
            value = pair[2] + 0
        if (i == 1)
            enum_first[name] = value
        if (!(name in enum_last) || enum_last[name] < value)
            enum_last[name] = value
    }
}

function add_struct(text,    parts, count, i, struct, names, several, n, plain)
{
    match(text, /} *[A-Za-z0-9_]+ *;$/)
    struct = trim(substr(text, RSTART + 1, RLENGTH - 2))
    struct_list[++structs] = struct
    sub(/^[^{]*{/, "", text)
    sub(/}[^}]*$/, "", text)
    count = split(text, parts, ";")
    for (i = 1; i <= count; i++) {
        plain = trim(parts[i])
        if (plain == "")
            continue
        if (match(plain, /\( *\*[a-z_0-9]+ *\)/)) { # a function
            name = substr(plain, RSTART, RLENGTH)
            gsub(/[(*) ]/, "", name)
            add_field(struct, "void *", name)
            continue
        }
        several = split(plain, names, ",")
        split_declaration(names[1])
        add_field(struct, type, name (is_array ? "[0]" : ""))
        for (n = 2; n <= several; n++) { # int64_t before, after;
            plain = type
            split_declaration(plain " " trim(names[n]))
            add_field(struct, plain, name (is_array ? "[0]" : ""))
        }
    }
}

function add_field(struct, type, name)
{
    field_type[struct, ++field_count[struct]] = type
    field_name[struct, field_count[struct]] = name
}

FNR == 1 {
    in_comment = 0
    taking = ""
    if (match(FILENAME, /czero\/[a-z_]+\.h$/))
        printf "#include \"%s\"\n", substr(FILENAME, RSTART)
}

FILENAME ~ /fixtures\.h$/ {
    if (match($0, /^FIXTURE\([A-Za-z0-9_]+/))
        known[substr($0, 9, RLENGTH - 8)] = 1
    if (match($0, /^RESULT\([A-Za-z0-9_]+/))
        known[substr($0, 8, RLENGTH - 7)] = 1
    if (match($0, /^HANDLE\([A-Za-z0-9_]+/)) {
        known[substr($0, 8, RLENGTH - 7) "_p"] = 1
        known[substr($0, 8, RLENGTH - 7) "_pp"] = 1
        known["const_" substr($0, 8, RLENGTH - 7) "_p"] = 1
    }
    if (match($0, /^static void valid_[a-z0-9_]+/))
        has_valid[substr($0, 19, RLENGTH - 18)] = 1
    next
}

{
    line = strip_comments($0)
    if (line ~ /^#/ || line ~ /\\$/)
        next
    if (taking == "") {
        if (line ~ /^CZ_API /)
            taking = "function"
        else if (line ~ /^typedef enum .*{/)
            taking = "enum"
        else if (line ~ /^typedef struct .*{/)
            taking = "struct"
        else
            next
        text = ""
    }
    text = text " " line
    if (taking == "function" ? line !~ /;/ : text !~ /}[^}]*;[ \t]*$/ || line !~ /^}/)
        next
    text = trim(text)
    if (taking == "function")
        add_function(text)
    else if (taking == "enum")
        add_enum(text)
    else
        add_struct(text)
    taking = ""
}

function print_enums(    e)
{
    for (e in enum_first) {
        known[e] = 1
        printf "FIXTURE(%s, %s, 5)\n{\n", e, e
        printf "    const int64_t bad[] = {valid_enum(t, %d), -1, %d, INT_MAX, INT_MIN, 0x5a5a};\n",
            enum_first[e], enum_last[e] + 1
        printf "    return (%s)bad[v];\n}\n\n", e
    }
}

# Statements that spoil a field, one for each bad value.
function spoil(struct, f,    type, name, i, values, count, list)
{
    type = field_type[struct, f]
    name = field_name[struct, f]
    if (name == "size" && f == 1)
        return
    list = ""
    if (type ~ /\*$/ && type !~ /\[/)
        list = "NULL"
    else if (type == "double" || type == "float")
        list = "NAN INFINITY -1 -INFINITY"
    else if (type == "int" || type == "int32_t")
        list = "-1 INT_MAX INT_MIN"
    else if (type == "int64_t")
        list = "-1 INT64_MAX INT64_MIN"
    else if (type == "size_t" || type == "uint64_t")
        list = "1 SIZE_MAX"
    else if (type == "uint32_t")
        list = "1 UINT32_MAX"
    else if (type in enum_first)
        list = "-1 " (enum_last[type] + 1) " INT_MAX"
    count = split(list, values, " ")
    for (i = 1; i <= count; i++)
        printf "    case %d:\n        s->%s = %s%s;\n        return \"%s = %s\";\n", ++cases, name,
            (type in enum_first ? "(" type ")" : ""), values[i], name, values[i]
}

function print_structs(    i, f, s, sized, upper)
{
    for (i = 1; i <= structs; i++) {
        s = struct_list[i]
        sized = field_name[s, 1] == "size"
        upper = toupper(s)
        cases = 0
        printf "static const char *spoil_%s(%s *s, int v)\n{\n    switch (v) {\n", s, s
        for (f = 1; f <= field_count[s]; f++)
            spoil(s, f)
        printf "    default:\n        return NULL;\n    }\n}\n\n"
        if (!(("const_" s "_p") in known)) {
            known["const_" s "_p"] = 1
            printf "FIXTURE(const_%s_p, const %s *, %d)\n{\n", s, s, (cases + (sized ? 7 : 1))
            make_struct(s, sized)
            printf "    if (v > %d)\n        t->what = spoil_%s(s, v - %d);\n", (sized ? 7 : 1), s,
                (sized ? 7 : 1)
            printf "    return v == 1 ? NULL : s;\n}\n\n"
        }
        if (!((s "_p") in known)) {
            known[s "_p"] = 1
            printf "FIXTURE(%s_p, %s *, %d)\n{\n", s, s, (sized ? 7 : 1)
            make_struct(s, sized)
            printf "    return v == 1 ? NULL : s;\n}\n\n"
        }
    }
}

function make_struct(s, sized)
{
    printf "    %s *s = have(t, 4 * sizeof *s + 64);\n", s
    if (sized)
        printf "#ifdef %s_INIT\n    *s = (%s)%s_INIT;\n#else\n    s->size = sizeof *s;\n#endif\n",
            toupper(s), s, toupper(s)
    if (s in has_valid)
        printf "    valid_%s(t, s);\n", s
    if (sized)
        printf "    spoil_size(t, s, sizeof *s, v);\n"
}

function print_functions(    i, a, word, type, result)
{
    for (i = 1; i <= functions; i++) {
        for (a = 1; a <= argument_count[i]; a++) {
            word = word_of(argument_type[i, a])
            if (!(word in known)) {
                printf "tests/misuse: `%s %s` of %s() is of a type without a fixture: add FIXTURE(%s, …) to " \
                       "tests/misuse/fixtures.h\n", argument_type[i, a], argument_name[i, a],
                    function_name[i], word > "/dev/stderr"
                failed = 1
            }
        }
        printf "static void call_%s(trial *t)\n{\n", function_name[i]
        for (a = 1; a <= argument_count[i]; a++) {
            type = argument_type[i, a]
            printf "    %s a%d = arg_%s(t, SELECT(t, %d, \"%s\"));\n", type, a, word_of(type), a,
                argument_name[i, a]
        }
        result = function_type[i]
        printf "    "
        if (result == "cz_status")
            printf "t->status = "
        else if (result == "const char *")
            printf "read_text("
        else if (result != "void")
            printf "(void)"
        printf "%s(", function_name[i]
        for (a = 1; a <= argument_count[i]; a++)
            printf "%s", (a > 1 ? ", a" : "a") a
        printf "%s)%s;\n}\n\n", (takes_more[i] ? ", 0" : ""), (result == "const char *" ? ")" : "")
    }
    printf "static const call calls[] = {\n"
    for (i = 1; i <= functions; i++) {
        printf "    {\"%s\", call_%s, %d, %d, {", function_name[i], function_name[i],
            function_type[i] == "cz_status", argument_count[i]
        for (a = 1; a <= argument_count[i]; a++)
            printf "{\"%s\", \"%s\", variants_%s}, ", argument_name[i, a], argument_type[i, a],
                word_of(argument_type[i, a])
        printf "}},\n"
    }
    printf "};\n"
}

END {
    print_enums()
    print_structs()
    print_functions()
    exit failed
}
