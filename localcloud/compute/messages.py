"""Compute Engine's messages, imported without its hundred clients: `google.cloud.compute_v1` imports them all.

That would be half of what a start of the local cloud costs. Who imports the package itself gets all of it, with these
same classes.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec, module_from_spec

_PACKAGE = "google.cloud.compute_v1"
if _PACKAGE in sys.modules:
    from google.cloud.compute_v1.types import compute as types
else:
    spec = find_spec(_PACKAGE)
    assert spec is not None, f"{_PACKAGE} is not installed"
    sys.modules[_PACKAGE] = module_from_spec(spec)  # whose `__init__` is not run
    from google.cloud.compute_v1.types import compute as types

    del sys.modules[_PACKAGE]

__all__ = ["types"]
