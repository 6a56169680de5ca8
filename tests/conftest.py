"""Settings for every test: one thread per process, and property tests that repeat themselves."""

from __future__ import annotations

import os

from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")

# Without a deadline: on a busy machine a slow example is no failure.
settings.register_profile("default", deadline=None)
settings.load_profile("default")
