"""The firing times of a schedule: the five fields of unix-cron, as Cloud Scheduler takes them, in UTC."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

_FIELDS = (("minute", 0, 59), ("hour", 0, 23), ("day of month", 1, 31), ("month", 1, 12), ("day of week", 0, 7))
_HORIZON_DAYS = 366 * 8
"""29 February comes again within eight years."""


@dataclass(frozen=True)
class Cron:
    """A parsed schedule. When days of month and of week are both restricted, either is enough, as in every cron."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool

    @staticmethod
    def parse(text: str) -> Cron:
        """`*`, numbers, ranges, lists and steps (`*/5`, `10-50/10`). Raises ValueError naming the field."""
        parts = text.split()
        if len(parts) != len(_FIELDS):
            raise ValueError(f"schedule {text!r} has {len(parts)} fields, not 5")
        minutes, hours, days, months, weekdays = (
            _field(part, *field) for part, field in zip(parts, _FIELDS, strict=True)
        )
        either = not parts[2].startswith("*") and not parts[4].startswith("*")
        return Cron(minutes, hours, days, months, frozenset(day % 7 for day in weekdays), either)

    def next_after(self, moment: datetime) -> datetime | None:
        """The first whole minute after `moment` that matches; None when there is none within eight years."""
        first = moment.replace(second=0, microsecond=0) + timedelta(minutes=1)
        day = first.replace(hour=0, minute=0)
        for _ in range(_HORIZON_DAYS):
            if self._on(day):
                for hour in sorted(self.hours):
                    for minute in sorted(self.minutes):
                        found = day.replace(hour=hour, minute=minute)
                        if found >= first:
                            return found
            day += timedelta(days=1)
        return None

    def _on(self, day: datetime) -> bool:
        in_month, in_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return day.month in self.months and (in_month or in_week if self.either_day else in_month and in_week)


def _field(text: str, name: str, low: int, high: int) -> frozenset[int]:
    found: set[int] = set()
    for item in text.split(","):
        span, _, step_text = item.partition("/")
        first, _, last = (f"{low}-{high}" if span == "*" else span).partition("-")
        try:
            start, step = int(first), int(step_text or 1)
            end = int(last) if last else (high if step_text else start)
        except ValueError as cause:
            raise ValueError(f"{name} {text!r} is no number, range, list or step") from cause
        if not low <= start <= end <= high or step < 1:
            raise ValueError(f"{name} {text!r} is outside {low}-{high}")
        found.update(range(start, end + 1, step))
    return frozenset(found)
