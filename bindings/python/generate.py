#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Write src/czero/_declarations.py: what the public headers declare, for ctypes.

    generate.py            write the file
    generate.py --check    is it what the headers say? 1 if not
    generate.py --layout   print a C program that prints sizes, offsets and numbers, for the test

The headers have one form (types on lines of their own, CZ_API before functions), so this reads
them line by line, as tests/misuse/generate.awk does. What it does not know ends it with a sentence.
"""
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
HEADERS = HERE.parents[1] / "include" / "czero"
OUTPUT = HERE / "src" / "czero" / "_declarations.py"

PLAIN = {
    "void": "None", "bool": "c_bool", "char": "c_char", "int": "c_int", "unsigned": "c_uint",
    "double": "c_double", "float": "c_float", "size_t": "c_size_t",
    "int32_t": "c_int32", "uint32_t": "c_uint32", "int64_t": "c_int64", "uint64_t": "c_uint64",
}


class Declarations:
    """All headers, each after those that it includes."""

    def __init__(self):
        self.enums = {}      # name: {enumerator: value}
        self.constants = {}  # of enumerations and of #define NAME NUMBER
        self.structs = {}    # name: [(field, type)]
        self.callbacks = {}  # name: type
        self.functions = {}  # name: (result, [arguments]), None for one with "..."
        self.defaults = {}   # of structs: {field: number}, where it is not 0
        self.order = []      # names of structs and callbacks, as they are declared
        self.handles = set()
        self._seen = set()
        for header in sorted(HEADERS.glob("*.h")):
            self._read(header)

    def _read(self, header):
        if header in self._seen:
            return
        self._seen.add(header)
        text = re.sub(r"/\*.*?\*/", " ", header.read_text(), flags=re.S)
        for name in re.findall(r'#include "czero/(\w+\.h)"', text):
            self._read(HEADERS / name)
        text = re.sub(r"\\\n", " ", text)
        self.handles.update(re.findall(r"^typedef struct (\w+) \1;", text, re.M))
        for name, number in re.findall(r"^#define (CZ_\w+) \(?(-?\d+)u?\)?\s*$", text, re.M):
            self.constants[name] = int(number)
        inits = re.findall(r"^#define (CZ_\w+)_INIT\s+\{(.*)\}\s*$", text, re.M)
        text = re.sub(r"^#.*$", "", text, flags=re.M)
        text = re.sub(r"CZ_PRINTF\([^)]*\)", "", text)
        declaration = re.compile(
            r"^(?:typedef enum \w+ \{(?P<enum>[^}]*)\} (?P<enum_name>\w+);"
            r"|typedef struct \w+ \{(?P<struct>[^}]*)\} (?P<struct_name>\w+);"
            r"|typedef (?P<result>[\w ]+?\**) ?\(\*(?P<callback>\w+)\)\((?P<arguments>[^;]*)\);"
            r"|CZ_API (?P<function>[^;]*);)", re.M | re.S)
        for found in declaration.finditer(text):
            if found["enum_name"]:
                self._enum(found["enum_name"], found["enum"])
            elif found["struct_name"]:
                self._struct(found["struct_name"], found["struct"])
            elif found["callback"]:
                self.callbacks[found["callback"]] = self._prototype(found["result"],
                                                                    found["arguments"])
                self.order.append(found["callback"])
            else:
                self._function(found["function"])
        for name, values in inits:
            self._init(name.lower(), values)

    def _enum(self, name, body):
        value, members = -1, {}
        for item in body.split(","):
            parts = [part.strip() for part in item.split("=")]
            if parts[0]:
                value = int(parts[1], 0) if len(parts) > 1 else value + 1
                members[parts[0]] = value
        self.enums[name] = members
        self.constants.update(members)

    def _struct(self, name, body):
        fields = []
        for line in body.split(";"):
            line = " ".join(line.split())
            function = re.fullmatch(r"(.+?) ?\(\*(\w+)\)\((.*)\)", line)
            if function:
                fields.append((function[2], self._prototype(function[1], function[3])))
            elif line:
                first, *others = [part.strip() for part in line.split(",")]
                kind, field = self._split(first)
                fields.append((field, self._type(kind)))
                base = kind.split("[")[0].rstrip("*").strip()
                for other in others:
                    kind, field = self._split(f"{base} {other}")
                    fields.append((field, self._type(kind)))
        self.structs[name] = fields
        self.order.append(name)

    def _function(self, text):
        text = " ".join(text.split())
        opening = text.index("(")
        kind, name = self._split(text[:opening])
        arguments = text[opening + 1:text.rindex(")")]
        if arguments.endswith("..."):
            return  # there is a function with a text as it is beside each of them
        self.functions[name] = (self._type(kind), self._arguments(arguments))

    def _init(self, name, values):
        if name not in self.structs:
            return
        fields, values = self.structs[name], re.sub(r"\{0\}", "0", values).split(",")
        assert len(fields) == len(values), f"{name}: {len(fields)} fields, {len(values)} values"
        for (field, _), value in zip(fields, values):
            value = re.sub(r"\([a-z_]+\)", "", value).strip()
            if value in ("0", "NULL", "") or value.startswith("sizeof"):
                continue
            number = self.constants.get(value)
            if number is None:
                number = float(value) if "." in value else int(value)
            if number:
                self.defaults.setdefault(name, {})[field] = number

    @staticmethod
    def _split(text):
        """"TYPE NAME" or "TYPE NAME[N]": the type, with its length, and the name."""
        found = re.fullmatch(r"(.+?)(\w+)(\[\w*\])?", text.strip())
        return found[1].strip() + (found[3] or ""), found[2]

    def _prototype(self, result, arguments):
        return f"CFUNCTYPE({', '.join([self._type(result)] + self._arguments(arguments))})"

    def _arguments(self, text):
        kinds = []
        text = re.sub(r"\w+ \(\*(\w+)\)\([^)]*\)", r"void *\1", " ".join(text.split()))
        for argument in text.split(","):
            if argument.strip() != "void":
                kind = self._split(argument)[0]
                if kind.endswith("]"):  # an array is its address
                    kind = kind[:kind.index("[")] + " *"
                kinds.append(self._type(kind))
        return kinds

    def _type(self, kind):
        read_only = kind.startswith("const")
        kind = re.sub(r"\b(const|struct)\b", "", kind)
        length = re.search(r"\[(\w+)\]", kind)
        stars = kind.count("*")
        base = re.sub(r"\[.*|\*", "", kind).strip()
        if base in self.enums:
            known = "c_int"
        elif base in self.structs or base in self.callbacks:
            known = base
        elif base in PLAIN:
            known = PLAIN[base]
        elif stars:  # a handle, which nobody looks into
            known = "None"
        else:
            raise SystemExit(f"generate.py: what is '{kind.strip()}'?")
        if known in ("None", "c_char") and stars:
            known = "c_char_p" if known == "c_char" and read_only else "c_void_p"
            stars -= 1
        for _ in range(stars):
            known = f"POINTER({known})"
        if length:
            known = f"{known} * {self.constants.get(length[1], length[1])}"
        return known


def python(found):
    lines = [
        "# SPDX-License-Identifier: MIT",
        '"""What the headers of the library declare. Written by generate.py; do not edit."""',
        "from ctypes import (CFUNCTYPE, POINTER, c_bool, c_char_p, c_double, c_float, c_int,",
        "                    c_int32, c_int64, c_size_t, c_uint, c_uint32, c_uint64, c_void_p)",
        "",
        "from ._struct import Struct",
        "",
    ]
    for name, value in found.constants.items():
        lines.append(f"{name} = {value}")
    lines += ["", "ENUMS = {"]
    for name, members in found.enums.items():
        lines.append(f'    "{name}": {{')
        lines += [f'        "{member}": {value},' for member, value in members.items()]
        lines.append("    },")
    lines += ["}", ""]
    for name in found.order:
        if name in found.callbacks:
            lines += ["", *wrapped(f"{name} = ", found.callbacks[name])]
            continue
        lines += ["", "", f"class {name}(Struct):", "    _fields_ = ["]
        for field, kind in found.structs[name]:
            lines += wrapped(f'        ("{field}", ', kind, "),")
        lines.append("    ]")
        if name in found.defaults:
            lines.append(f"    _defaults_ = {found.defaults[name]!r}")
    lines += ["", "", "# Of each function: what it returns, and what it is given.", "FUNCTIONS = {"]
    for name, (result, arguments) in sorted(found.functions.items()):
        lines += wrapped(f'    "{name}": ', f"({result}, [{', '.join(arguments)}])", ",")
    lines += ["}", ""]
    return "\n".join(lines)


def wrapped(begin, kind, end=""):
    """Lines of at most 100 columns."""
    indent = " " * (len(begin) - len(begin.lstrip()) + 8)
    lines, line = [], begin
    for word in re.findall(r"\S+", kind + end):
        if len(line) + len(word) + 1 > 99:
            lines.append(line.rstrip())
            line = indent
        line += word + " "
    return [*lines, line.rstrip()]


def layout(found):
    lines = ["#include <czero/czero.h>", "#include <czero/backend.h>", "#include <stdio.h>", "",
             "int main(void)", "{"]
    for name in found.structs:
        lines.append(f'    printf("{name} %zu\\n", sizeof({name}));')
        for field, _ in found.structs[name]:
            lines.append(f'    printf("{name}.{field} %zu %zu\\n", offsetof({name}, {field}), '
                         f"sizeof((({name} *)NULL)->{field}));")
    for name in found.constants:
        lines.append(f'    printf("{name} %lld\\n", (long long){name});')
    for name in found.structs:
        macro = f"{name.upper()}_INIT"
        lines += [f"#ifdef {macro}", "    {", f"        const {name} it = {macro};",
                  f'        printf("{macro}");',
                  "        for (size_t i = 0; i < sizeof it; i++)",
                  '            printf(" %u", ((const unsigned char *)&it)[i]);',
                  '        printf("\\n");', "    }", "#endif"]
    return "\n".join([*lines, "    return 0;", "}", ""])


def main():
    if sys.argv[1:] == ["--layout"]:
        print(layout(Declarations()), end="")
    elif sys.argv[1:] == ["--check"]:
        if OUTPUT.read_text() != python(Declarations()):
            print("src/czero/_declarations.py is not what the headers say: run "
                  "bindings/python/generate.py")
            return 1
    elif not sys.argv[1:]:
        OUTPUT.write_text(python(Declarations()))
    else:
        print(__doc__)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
