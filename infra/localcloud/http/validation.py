"""Checks of names, labels and metadata that the services share, with Google's errors."""

from __future__ import annotations

import re
from typing import Any
from uuid import UUID

from infra.localcloud.http.errors import invalid

_ID = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_LABEL_KEY = re.compile(r"[a-z][-_a-z0-9]{0,62}")
_LABEL_VALUE = re.compile(r"[-_a-z0-9]{0,63}")
_LABELS_MAX = 64
METADATA_VALUE_BYTES_MAX = 256 * 1024
METADATA_TOTAL_BYTES_MAX = 512 * 1024


def check_id(field: str, value: str) -> None:
    """Raises ApiError 400 unless `value` can name a node or an instance."""
    if not _ID.fullmatch(value):
        pattern = "(?:[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)"
        raise invalid(f"Invalid value for field '{field}': '{value}'. Must be a match of regex '{pattern}'")


def check_request_id(request_id: str) -> None:
    """Raises ApiError 400 for a `requestId` that is no UUID, or the zero UUID; none at all is allowed.

    The rule stands in the discovery documents of Compute v1 and TPU v2 (2026-10); the words of the refusal are ours.
    """
    try:
        is_valid = not request_id or UUID(request_id).int != 0
    except ValueError:
        is_valid = False
    if not is_valid:
        raise invalid(f"Invalid value for field 'requestId': '{request_id}'. Must be a valid, non-zero UUID.")


def check_labels(labels: dict[str, Any]) -> None:
    """Raises ApiError 400 for labels that Google refuses: capitals, dots, over 63 characters, over 64 labels."""
    if len(labels) > _LABELS_MAX:
        raise invalid(f"Invalid labels: at most {_LABELS_MAX} labels are allowed.")
    for key, value in labels.items():
        if not _LABEL_KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(str(value)):
            raise invalid(
                f"Invalid value for field 'labels': '{key}={value}'. Label keys and values may hold lowercase letters, "
                "digits, '-' and '_' only, 63 characters at most, and a key starts with a letter."
            )


def check_metadata(items: dict[str, str]) -> None:
    """Raises ApiError 400 when a value has more than 256 KB or all together more than 512 KB."""
    sizes = [len(value.encode()) for value in items.values()]
    if max(sizes, default=0) > METADATA_VALUE_BYTES_MAX or sum(sizes) > METADATA_TOTAL_BYTES_MAX:
        raise invalid("Metadata is too large: 256 KB a value and 512 KB in all are allowed.")
