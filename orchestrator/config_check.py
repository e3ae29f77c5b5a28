"""Is what orchestrate.toml says a configuration? Loaded only where there is something to check."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from decimal import Decimal
from pathlib import Path

from pydantic import ConfigDict, Field, ValidationError, field_validator
from pydantic.dataclasses import dataclass

from orchestrator.config import Config
from orchestrator.errors import UsageError

_PROJECT = re.compile(r"^[a-z][-a-z0-9]{4,28}[a-z0-9]$")
_ZONE = re.compile(r"^[a-z]+-[a-z]+[0-9]+-[a-z0-9]+$")

_REASONS = {
    "unexpected_keyword_argument": "there is no such key",
    "tuple_type": 'is no list, as ["us-central1-a"] is one',
    "string_type": "is no text in quotes",
}


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class _CheckedConfig(Config):
    max_hours: Decimal = Field(default=Config.max_hours, gt=0)
    price_max_age_days: int | None = Field(default=None, gt=0)
    spot_price_max_age_days: int | None = Field(default=None, gt=0)

    @field_validator("project")
    @classmethod
    def _is_project(cls, value: str | None) -> str | None:
        if value is not None and not _PROJECT.match(value):
            raise ValueError("is no Google Cloud project id (6 to 30 of a-z, 0-9 and -)")
        return value

    @field_validator("zones")
    @classmethod
    def _are_zones(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for zone in value:
            if not _ZONE.match(zone):
                raise ValueError(f"{zone!r} is no zone (like us-central1-a)")
        return value


def checked_config(values: Mapping[str, object], path: Path) -> Config:
    """The configuration with these values. Raises UsageError naming file, key and fix."""
    try:
        return _CheckedConfig(**values)  # type: ignore[arg-type]
    except ValidationError as cause:
        first = cause.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        reason = _REASONS.get(first["type"], first["msg"].removeprefix("Value error, "))
        known = ", ".join(field.name for field in fields(Config))
        raise UsageError(f"{path}: {key} = {first['input']!r}: {reason}", f"known keys: {known}") from cause
