"""The kinds of data: every module of this package that defines `KIND`; adding one is adding a file."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules

from trainer.data.kinds.base import DataKind


@cache
def data_kinds() -> dict[str, DataKind]:
    """All kinds of data by name; imports nothing that decodes pictures."""
    modules = (import_module(f"{__name__}.{found.name}") for found in iter_modules(__path__))
    return {module.KIND.name: module.KIND for module in modules if hasattr(module, "KIND")}
