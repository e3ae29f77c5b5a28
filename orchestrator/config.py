"""Where is the state, which project is it, and what are the defaults? orchestrate.toml, environment, flags."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from orchestrator.domain.prices import PriceAge
from orchestrator.errors import UsageError

FILE_NAME = "orchestrate.toml"
LIST_PRICE_DAYS = 180
SPOT_PRICE_DAYS = 30
LOCAL_PROJECT = "local-project"
_PROJECT = re.compile(r"^[a-z][-a-z0-9]{4,28}[a-z0-9]$")
_ZONE = re.compile(r"^[a-z]+-[a-z]+[0-9]+-[a-z0-9]+$")

_REASONS = {
    "extra_forbidden": "there is no such key",
    "tuple_type": 'is no list, as ["us-central1-a"] is one',
    "string_type": "is no text in quotes",
}


class Config(BaseModel):
    """The configuration. `project` None means the embedded local cloud, which costs nothing.

    `zones` is the order of preference when --zone is not given; `worker_service_account` is what the VMs run as
    (None: the project's default compute account). `scheduler_service_account` is in whose name Cloud Scheduler deletes
    TPU nodes at their deadline (None: the same account). How many days old a price may be: list prices hardly ever
    move, spot prices every few weeks. None: 180 and 30 days for Google Cloud, any age for the local cloud, which bills
    by them. `ssh_key` is the private key for `--accel host:..` (None: the SSH agent and ~/.ssh, as `ssh` finds them).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    project: str | None = None
    zones: tuple[str, ...] = ()
    max_hours: Decimal = Field(default=Decimal(1), gt=0)
    worker_service_account: str | None = None
    scheduler_service_account: str | None = None
    price_max_age_days: int | None = Field(default=None, gt=0)
    spot_price_max_age_days: int | None = Field(default=None, gt=0)
    ssh_key: Path | None = None

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

    @field_validator("ssh_key")
    @classmethod
    def _is_a_file(cls, value: Path | None) -> Path | None:
        if value is not None and not value.expanduser().is_file():
            raise ValueError("there is no such file")
        return None if value is None else value.expanduser().resolve()

    @property
    def is_local(self) -> bool:
        return self.project is None

    def price_age(self, today: date) -> PriceAge | None:
        """How old prices may be; None where any age will do."""
        if self.is_local and self.price_max_age_days is None and self.spot_price_max_age_days is None:
            return None
        forever = 36500
        list_days = self.price_max_age_days or (forever if self.is_local else LIST_PRICE_DAYS)
        spot_days = self.spot_price_max_age_days or (forever if self.is_local else min(SPOT_PRICE_DAYS, list_days))
        return PriceAge(today, list_days, spot_days)


def load_config(folder: Path, environ: Mapping[str, str]) -> Config:
    """Read `orchestrate.toml` in `folder`, then ORCHESTRATE_PROJECT. Raises UsageError naming file, key and fix."""
    path = folder / FILE_NAME
    values: dict[str, object] = {}
    if path.exists():
        import tomllib

        try:
            values = tomllib.loads(path.read_text("utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as cause:
            raise UsageError(f"{path} cannot be read: {cause}", "correct the file, or move it away") from cause
    if environ.get("ORCHESTRATE_PROJECT"):
        values["project"] = environ["ORCHESTRATE_PROJECT"]
    try:
        return Config.model_validate(values)
    except ValidationError as cause:
        first = cause.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        reason = _REASONS.get(first["type"], first["msg"].removeprefix("Value error, "))
        known = ", ".join(Config.model_fields)
        raise UsageError(f"{path}: {key} = {first['input']!r}: {reason}", f"known keys: {known}") from cause


def state_home(environ: Mapping[str, str]) -> Path:
    """The state folder: ORCHESTRATE_HOME, else the platform's user state folder."""
    named = environ.get("ORCHESTRATE_HOME")
    if named:
        return Path(named).expanduser().resolve()
    from platformdirs import user_state_path

    return user_state_path("orchestrate", appauthor=False)


def project_home(home: Path, config: Config) -> Path:
    """The part of the state folder that belongs to this project; simulated and real dollars never share a ledger.

    Raises UsageError when it cannot be made.
    """
    part = home / "local" if config.project is None else home / "projects" / config.project
    try:
        part.mkdir(parents=True, exist_ok=True, mode=0o700)
        part.chmod(0o700)
    except OSError as cause:
        raise UsageError(
            f"the state folder {part} cannot be made: {cause.strerror}",
            "set ORCHESTRATE_HOME to a folder you may write",
        ) from cause
    return part
