"""Offset of this machine's clock from the cloud's: deadlines use cloud time, and laptops sleep and drift."""

from __future__ import annotations

from datetime import datetime, timezone
from email.utils import parsedate_to_datetime

import requests

from infra.gcp.clients import CALL_TIMEOUT_S, Endpoints
from orchestrator.errors import Unavailable

RESOLUTION_S = 2.0
"""The `Date` header has whole seconds and the answer takes time: a smaller difference is none."""


def skew_s(endpoints: Endpoints) -> float:
    """Seconds by which the cloud's clock is ahead of this machine's, by the `Date` of an answer; 0 below two seconds.

    Raises Unavailable when the cloud does not answer.
    """
    url = endpoints.base_url or "https://storage.googleapis.com"
    session = requests.Session()
    session.trust_env = not endpoints.anonymous  # the local cloud is on this machine: no proxy in between
    before = datetime.now(timezone.utc)
    try:
        answer = session.head(url, timeout=CALL_TIMEOUT_S)
        said = parsedate_to_datetime(answer.headers["Date"])
    except requests.RequestException as cause:
        raise Unavailable(f"cannot reach {url} ({type(cause).__name__})", "check the network") from cause
    except (KeyError, ValueError) as cause:
        raise Unavailable(f"{url} answers without a Date header", "check proxy and network") from cause
    after = datetime.now(timezone.utc)
    difference_s = (said - (before + (after - before) / 2)).total_seconds()
    return difference_s if abs(difference_s) >= RESOLUTION_S else 0.0
