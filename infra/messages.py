"""Messages to people by Apprise: webhooks, e-mail, Slack and some hundred services more, each a URL.

The URL is the secret of most of them (Slack's webhook, the password of a mailbox), so none is in any error or log.
https://github.com/caronc/apprise/wiki lists them.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from orchestrator.errors import CloudError, UsageError
from orchestrator.extras import require_extra

if TYPE_CHECKING:
    import apprise

HOW_TO = "https://github.com/caronc/apprise/wiki lists how each service is written"


class AppriseMessenger:
    """Sends to every service of a list of URLs."""

    def __init__(self, urls: Sequence[str]) -> None:
        """Raises UsageError naming the place of a URL that is none of a service, and what is not installed."""
        require_extra("notify", "notifications")
        # Its log and that of its HTTP library name the address to which they write.
        for name in ("apprise", "urllib3", "requests_oauthlib"):
            logging.getLogger(name).setLevel(logging.CRITICAL + 1)
        self._services: list[apprise.NotifyBase] = []
        for place, url in enumerate(urls, 1):
            made = _made(url)
            if made is None:
                scheme = url.partition("://")[0] if "://" in url else "no scheme"
                known = f"{scheme[:12]}://.." if scheme.isalnum() else scheme
                raise UsageError(f"notification URL {place} of {len(urls)} ({known}) is not one of a service", HOW_TO)
            self._services.append(made)

    @property
    def names(self) -> list[str]:
        """The services' names: Slack, JSON, .."""
        return [str(one.service_name) for one in self._services]

    def send(self, title: str, body: str, *, is_bad: bool = False) -> Sequence[str]:
        """Send to each; returns the names of those that did not take it. Raises CloudError where none did."""
        import apprise

        kind = apprise.NotifyType.FAILURE if is_bad else apprise.NotifyType.INFO
        message = {"title": title, "body": body, "notify_type": kind}
        refused = [str(one.service_name) for one in self._services if not _sent(one, **message)]
        if len(refused) == len(self._services):
            raise CloudError(f"not taken by {', '.join(refused)}", "`orchestrate notify --test` tries again")
        return refused


def _made(url: str) -> Any:
    import apprise

    try:
        made = apprise.Apprise.instantiate(url)
    except Exception:  # whatever a plugin does with a text that it does not expect: the text stays here
        return None  # nosemgrep: swallowed-error
    if isinstance(made, apprise.NotifyBase) and made.overflow_mode is apprise.OverflowMode.UPSTREAM:
        made.overflow_mode = apprise.OverflowMode.SPLIT  # what is too long for a service would never be taken
    return made


def _sent(service: Any, **message: Any) -> bool:
    try:
        return bool(service.notify(**message))
    except Exception:  # what it says may quote the address
        return False  # nosemgrep: swallowed-error
