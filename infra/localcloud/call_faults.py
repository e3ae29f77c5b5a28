"""Faults injected into API calls: planned per method, and counted as they are hit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from infra.localcloud.http.errors import HTTP_OF_STATUS, STATUS_OF_HTTP, ApiError, NoReply, invalid
from infra.localcloud.store import Document, Store


class CallFaults:
    """Planned faults, oldest first. A fault *before* the effect replaces it; one *after* only hides its reply.

    A `silent` fault sends no reply at all: the caller waits until it gives up.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def plan(self, body: dict[str, Any]) -> Document:
        """Plan `times` failures of `method`. Raises ApiError 400 for an impossible plan."""
        http = int(body.get("http", 503))
        status = str(body.get("status") or STATUS_OF_HTTP.get(http, ""))
        when, times = body.get("when", "before"), int(body.get("times", 1))
        if not body.get("method") or status not in HTTP_OF_STATUS or when not in ("before", "after") or times < 1:
            raise invalid(f"A fault needs method, times >= 1, when before|after, and a known http or status: {body}")
        number = self._store.next_number("faults")
        fault = {
            "id": number, "method": body["method"], "times": times, "when": when, "http": http,
            "status": status, "silent": bool(body.get("silent")),
            "message": body.get("message") or f"Planned fault {number}.", "hit": 0,
        }  # fmt: skip
        self._store.put("faults", f"{number:08d}", fault)
        return fault

    def all(self) -> list[Document]:
        """Every fault ever planned, with how often it was hit; `done` when that is as often as planned."""
        return [{**fault, "done": fault["hit"] >= fault["times"]} for _, fault in self._store.list("faults")]

    def clear(self) -> None:
        """Forget all planned faults."""
        for name, _ in self._store.list("faults"):
            self._store.delete("faults", name)

    def meet(self, method: str) -> Callable[[], None] | None:
        """Called before `method`: raises the fault, or returns what raises it after the effect, or None."""
        for name, fault in self._store.list("faults"):
            if fault["method"] not in (method, "*") or fault["hit"] >= fault["times"]:
                continue
            fault["hit"] += 1
            self._store.put("faults", name, fault)
            error: Exception = ApiError(fault["status"], fault["message"], reason="backendError", http=fault["http"])
            if fault["silent"]:
                error = NoReply(fault["message"])

            def raise_fault(error: Exception = error) -> None:
                raise error

            if fault["when"] == "after":
                return raise_fault
            raise_fault()
        return None
