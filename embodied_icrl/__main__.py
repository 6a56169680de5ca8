"""`python -m embodied_icrl` is the console script `embodied-icrl`."""

from __future__ import annotations

import sys

from embodied_icrl.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
