# SPDX-License-Identifier: MIT
"""The programs in README.md, docs/python.md and docs/host-optimizer.md run as they are pasted, and print something."""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import numpy  # noqa: F401  which they import: without it this test is skipped

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Page(unittest.TestCase):
    def test_every_program_runs(self):
        programs = []
        for name in ("README.md", "docs/python.md", "docs/host-optimizer.md"):
            found = re.findall(r"^```python\n(.*?)^```$", (ROOT / name).read_text(), re.M | re.S)
            self.assertTrue(found, name)
            programs += found
        for number, program in enumerate(programs):
            with self.subTest(number), tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder, "program.py")
                path.write_text(program)
                if "import torch" in program:
                    try:
                        import torch
                        self.assertTrue(torch.distributed.is_available())
                    except ImportError:
                        self.skipTest("no torch")
                done = subprocess.run([sys.executable, path], capture_output=True, text=True,
                                      timeout=120)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertTrue(done.stdout.strip())
                print(done.stdout, end="")


if __name__ == "__main__":
    unittest.main()
