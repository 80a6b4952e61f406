# SPDX-License-Identifier: MIT
"""``python -m czero``: the czero command (inspect, verify, convert, diff, plan, doctor, bench)."""
import os
import pathlib
import sys


def main():
    tool = pathlib.Path(__file__).resolve().parent / "bin" / "czero"
    tool = pathlib.Path(os.environ.get("CZERO_TOOL") or tool)
    if not tool.exists():
        sys.exit(f"czero: there is no {tool}: this package was built without jansson or xxhash")
    os.execv(tool, ["czero", *sys.argv[1:]])


if __name__ == "__main__":
    main()
