"""Rules of Cloud Storage for names: buckets, objects and locations."""

from __future__ import annotations

import re

from infra.localcloud.http.errors import invalid

_BUCKET = re.compile(r"[a-z0-9][a-z0-9._-]*[a-z0-9]")
_IP_ADDRESS = re.compile(r"\d{1,3}(\.\d{1,3}){3}")
_REGION = re.compile(r"[A-Z]+-[A-Z]+[0-9]+")
_MULTI_REGIONS = frozenset({"US", "EU", "ASIA"})
_DUAL_REGIONS = frozenset({"NAM4", "EUR4", "EUR5", "EUR7", "EUR8", "ASIA1", "US-CENTRAL-EAST"})


def check_bucket_name(name: str) -> str:
    """The name itself. Raises ApiError 400 in Google's words when the naming rules refuse it."""
    longest = 222 if "." in name else 63
    parts_fit = all(0 < len(part) <= 63 for part in name.split("."))
    is_shaped = 3 <= len(name) <= longest and _BUCKET.fullmatch(name) is not None and parts_fit
    is_reserved = name.startswith("goog") or "google" in name or _IP_ADDRESS.fullmatch(name) is not None
    if not is_shaped or is_reserved:
        raise invalid(f"Invalid bucket name: '{name}'")
    return name


def check_object_name(name: str) -> str:
    """The name itself. Raises ApiError 400 when it is empty, too long, has a line break, or is reserved."""
    length_bytes = len(name.encode("utf-8", "replace"))
    if not name:
        raise invalid("Required object name.", reason="required")
    if length_bytes > 1024:
        raise invalid(f"The maximum object length is 1024 characters, but got a name with {length_bytes} characters.")
    has_bad_character = any(c in "\r\n\0" or 0xD800 <= ord(c) <= 0xDFFF for c in name)
    if has_bad_character or name in (".", "..") or name.startswith(".well-known/acme-challenge/"):
        raise invalid(f"Disallowed unicode characters present in object name '{name!a}'")
    return name


def check_location(location: str) -> str:
    """The location in Google's upper case. Raises ApiError 400 when no location can have this name."""
    upper = location.upper()
    if upper in _MULTI_REGIONS or upper in _DUAL_REGIONS or _REGION.fullmatch(upper):
        return upper
    raise invalid("The specified location constraint is not valid.")


def location_type(location: str) -> str:
    """`multi-region`, `dual-region` or `region`."""
    if location in _MULTI_REGIONS:
        return "multi-region"
    return "dual-region" if location in _DUAL_REGIONS else "region"
