"""The credit as a user may state it: amounts and dates that can be true."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, timedelta
from decimal import Decimal

from orchestrator.domain.money import CENT, ZERO, usd
from orchestrator.errors import UsageError
from orchestrator.ledger.credit import Credit
from orchestrator.money.guard import FREE_TRIAL_DAYS, FREE_TRIAL_USD

MAX_CREDIT_USD = Decimal(10_000_000)
_NO_USE = "an expired credit pays for nothing"


def stated_anew(
    amount: Decimal, expires: date | None, spent: Decimal | None, before: Credit | None, now: datetime
) -> Credit:
    """The credit; what is not given stays as before. Raises UsageError for what cannot be true."""
    starts = None
    if before is not None and (expires is None or expires == before.expires):
        starts, expires = before.starts, before.expires
    if spent is None:
        spent = before.spent_before_usd if before else ZERO
    _check_cents("--credit", amount)
    _check_cents("--spent", spent)
    if spent > amount:
        raise UsageError(f"--spent: {usd(spent)} is more than the credit of {usd(amount)}")
    if expires is not None and expires < now.date():
        raise UsageError(f"--expires: {expires} is in the past", _NO_USE)
    return Credit(amount_usd=amount, starts=starts, expires=expires, spent_before_usd=spent, stated_at=now)


def _check_cents(flag: str, usd: Decimal) -> None:
    if usd > MAX_CREDIT_USD or usd != usd.quantize(CENT):
        raise UsageError(f"{flag}: {usd} is not an amount in whole cents up to {MAX_CREDIT_USD}")


def free_trial_credit(started: date | None, spent: Decimal | None, before: Credit | None, now: datetime) -> Credit:
    """Google's free trial, begun on `started` (None: today). Raises UsageError when it has not begun or is over."""
    first = started or now.date()
    last = first + timedelta(days=FREE_TRIAL_DAYS - 1)
    if first > now.date():
        raise UsageError(f"--started: {first} is in the future")
    if last < now.date():
        raise UsageError(f"--started: the trial of {first} ended on {last}", _NO_USE)
    return replace(stated_anew(FREE_TRIAL_USD, last, spent, before, now), starts=first)
