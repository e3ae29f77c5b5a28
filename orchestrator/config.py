"""Where is the state, which project is it, and what are the defaults? orchestrate.toml, environment, flags."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from pathlib import Path

from orchestrator.domain.prices import PriceAge
from orchestrator.errors import UsageError

FILE_NAME = "orchestrate.toml"
LIST_PRICE_DAYS = 180
SPOT_PRICE_DAYS = 30
LOCAL_PROJECT = "local-project"


@dataclass(frozen=True)
class Config:
    """The configuration. `project` None means the embedded local cloud, which costs nothing.

    `zones` is the order of preference when --zone is not given; `worker_service_account` is what the VMs run as
    (None: the project's default compute account). `scheduler_service_account` is in whose name Cloud Scheduler deletes
    TPU nodes at their deadline (None: the same account). How many days old a price may be: list prices hardly ever
    move, spot prices every few weeks. None: 180 and 30 days for Google Cloud, any age for the local cloud, which bills
    by them.
    """

    project: str | None = None
    zones: tuple[str, ...] = ()
    max_hours: Decimal = Decimal(1)
    worker_service_account: str | None = None
    scheduler_service_account: str | None = None
    price_max_age_days: int | None = None
    spot_price_max_age_days: int | None = None

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
    if not values:
        return Config()
    from orchestrator.config_check import checked_config

    return checked_config(values, path)


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
