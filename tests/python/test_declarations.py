# SPDX-License-Identifier: MIT
"""The declarations for ctypes are what the headers say, byte by byte."""
import ctypes
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from czero import _declarations as c

ROOT = pathlib.Path(__file__).resolve().parents[2]
GENERATE = ROOT / "bindings" / "python" / "generate.py"


class Declarations(unittest.TestCase):
    def test_the_file_is_what_the_generator_writes(self):
        done = subprocess.run([sys.executable, GENERATE, "--check"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_every_exported_function_is_declared(self):
        symbols = (ROOT / "tests" / "abi" / "symbols.txt").read_text().split()
        variadic = {"cz_fail", "cz_log"}
        self.assertEqual(set(c.FUNCTIONS), set(symbols) - variadic)

    def test_sizes_offsets_numbers_and_defaults_are_those_of_c(self):
        with tempfile.TemporaryDirectory() as folder:
            source, program = pathlib.Path(folder, "layout.c"), pathlib.Path(folder, "layout")
            source.write_text(subprocess.run([sys.executable, GENERATE, "--layout"], check=True,
                                             capture_output=True, text=True).stdout)
            subprocess.run([os.environ.get("CC", "cc"), "-I", ROOT / "include", source, "-o",
                            program], check=True)
            lines = subprocess.run([program], check=True, capture_output=True,
                                   text=True).stdout.splitlines()
        seen = set()
        for line in lines:
            name, *numbers = line.split()
            numbers = [int(number) for number in numbers]
            with self.subTest(name):
                if name.endswith("_INIT"):
                    ours = list(bytes(getattr(c, name[:-5].lower())()))
                elif name.startswith("CZ_"):
                    ours = [getattr(c, name)]
                elif "." in name:
                    struct, field = name.split(".")
                    here = getattr(getattr(c, struct), field)
                    ours = [here.offset, here.size]
                else:
                    ours = [ctypes.sizeof(getattr(c, name))]
                    seen.add(name)
                self.assertEqual(ours, numbers)
        structs = {name for name, thing in vars(c).items()
                   if isinstance(thing, type) and issubclass(thing, ctypes.Structure)}
        self.assertEqual(seen, structs - {"Struct"})


if __name__ == "__main__":
    unittest.main()
