"""The command `snn-ipu`."""

from __future__ import annotations

import sys

_EXTRA = ("click", "rich", "matplotlib")


def main() -> None:
    """Run the command line; without a package of the extra `train`, say how to install it and exit 2."""
    try:
        from .app import app

        app(prog_name="snn-ipu")
    except ModuleNotFoundError as e:
        package = (e.name or "").partition(".")[0]
        if package not in _EXTRA:
            raise
        print(f"snn-ipu needs the package {package}: pip install 'snn_ipu[train]'", file=sys.stderr)
        sys.exit(2)
