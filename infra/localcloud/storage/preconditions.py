"""Preconditions of every method: the generations and metagenerations that the caller expects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from infra.localcloud.http.errors import invalid, precondition_failed
from infra.localcloud.storage.model import Bucket, StoredObject
from infra.localcloud.store import Document


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
    """What must hold of the object (or bucket) before the request has any effect."""

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

    def document(self) -> Document:
        """For an upload session, which must still know them after a restart."""
        return asdict(self)

    def check(self, current: StoredObject | None) -> None:
        """Raises ApiError 412 unless all hold. No object at all counts as generation 0."""
        self._check_generation(current.generation if current else 0)
        self._check_metageneration(current.metageneration if current else 0)

    def check_bucket(self, bucket: Bucket) -> None:
        """The same for a bucket, which has a metageneration only."""
        self._check_metageneration(bucket.metageneration)

    def is_unchanged(self, current: StoredObject) -> bool:
        """For reads: True when the caller has this version already, which answers 304 instead of 412."""
        return (
            self.generation_not_match == current.generation or self.metageneration_not_match == current.metageneration
        )

    def _check_generation(self, generation: int) -> None:
        if self.generation_match is not None and self.generation_match != generation:
            raise precondition_failed()
        if self.generation_not_match is not None and self.generation_not_match == generation:
            raise precondition_failed()

    def _check_metageneration(self, metageneration: int) -> None:
        if self.metageneration_match is not None and self.metageneration_match != metageneration:
            raise precondition_failed()
        if self.metageneration_not_match is not None and self.metageneration_not_match == metageneration:
            raise precondition_failed()
