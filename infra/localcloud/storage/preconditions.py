"""Preconditions: the generations and metagenerations that a caller expects, on every method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from infra.localcloud.http.errors import invalid, precondition_failed
from infra.localcloud.storage.model import Bucket, StoredObject


def integer(params: Mapping[str, str], key: str) -> int | None:
    """The query parameter as a whole number, None when it is absent. Raises ApiError 400 for anything else."""
    text = params.get(key)
    if text is None:
        return None
    try:
        value = int(text)
    except ValueError as cause:
        raise invalid(f"Invalid value for {key}: '{text}'", reason="invalidParameter") from cause
    if value < 0:
        raise invalid(f"Invalid value for {key}: '{text}'", reason="invalidParameter")
    return value


def flag(params: Mapping[str, str], key: str) -> bool:
    """True for `true`, in any case: Google's Python clients write `True`."""
    return params.get(key, "").lower() == "true"


@dataclass(frozen=True)
class Conditions:
    """What must be true of the object (or bucket) before the request has any effect."""

    generation_match: int | None = None
    generation_not_match: int | None = None
    metageneration_match: int | None = None
    metageneration_not_match: int | None = None

    @classmethod
    def of(cls, params: Mapping[str, str], prefix: str = "if") -> Conditions:
        """From a query string; `prefix` is `ifSource` for the source of a copy."""
        return cls(
            integer(params, f"{prefix}GenerationMatch"),
            integer(params, f"{prefix}GenerationNotMatch"),
            integer(params, f"{prefix}MetagenerationMatch"),
            integer(params, f"{prefix}MetagenerationNotMatch"),
        )

    def check(self, current: StoredObject | None) -> None:
        """Raises ApiError 412 unless all are met. No object at all counts as generation 0."""
        _check(current.generation if current else 0, self.generation_match, self.generation_not_match)
        _check(current.metageneration if current else 0, self.metageneration_match, self.metageneration_not_match)

    def check_bucket(self, bucket: Bucket) -> None:
        """The same for a bucket, which has a metageneration only."""
        _check(bucket.metageneration, self.metageneration_match, self.metageneration_not_match)

    def is_unchanged(self, current: StoredObject) -> bool:
        """For reads: True when the caller has this version already, which gets a 304 instead of a 412."""
        known = (self.generation_not_match, self.metageneration_not_match)
        return known[0] == current.generation or known[1] == current.metageneration


def _check(current: int, match: int | None, not_match: int | None) -> None:
    if match not in (None, current) or not_match == current:
        raise precondition_failed()
