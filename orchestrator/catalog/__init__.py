"""Data files: what can be rented, what it costs, what others published. See README.md beside this file."""

from __future__ import annotations

from typing import Any


def read_toml(name: str) -> dict[str, Any]:
    """A TOML file of the catalog."""
    from importlib.resources import files

    import tomllib  # these two load more than all else that most commands need

    return tomllib.loads((files(__name__) / name).read_text("utf-8"))
