"""Lists that many runs share: of the cloud's VMs, and of the bucket's heartbeats and manifests.

What is shared only observes. What money or a deletion depends on is asked for by the run itself, as ever.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Set
from math import inf
from typing import Generic, TypeVar

from orchestrator.errors import OrchestratorError
from orchestrator.ports import Clock, Listing, ObjectStore, VmProvider, VmRef
from orchestrator.running.crowd import Crowd

STALE_AGES = 4
"""While a list is under way, the one before it serves until it is so many times too old."""
_Said = TypeVar("_Said")
log = logging.getLogger("orchestrate")


class SharedLists:
    """The latest lists that any run of this process asked for. Safe for threads."""

    def __init__(self, crowd: Crowd) -> None:
        self._crowd = crowd
        self._lock = threading.Lock()
        self._running_vms: dict[int, _Shared[tuple[Listing, Set[VmRef]]]] = {}
        self._objects: dict[tuple[str, str], _Shared[Mapping[str, int]]] = {}

    def seems_gone(self, provider: VmProvider, ref: VmRef, clock: Clock, poll_s: float) -> bool:
        """Check whether a list that is at most a poll old lacks the VM, or part of it. Then it is asked about by name.

        Where that cannot be listed now, a few runs are each asked about, and of many nothing is known: SSH tells.
        """
        with self._lock:
            shared = self._running_vms.setdefault(id(provider), _Shared())
        said = shared.recent(lambda: _running(provider), clock, self._crowd.poll_s(poll_s))
        lacking = said is None or not said[1] >= set(ref.nodes)
        if said is None or (lacking and said[0].silent_at({ref.zone})):
            return not self._crowd.is_crowded
        return lacking

    def objects(self, store: ObjectStore, place: tuple[str, str], clock: Clock, age_s: float) -> Mapping[str, int]:
        """Name and generation of the objects that a list showed which is at most so old; none where nothing is known.

        `place`: their bucket, and the pattern of the list.
        """
        with self._lock:
            shared = self._objects.setdefault(place, _Shared())
        bucket, pattern = place
        said = shared.recent(
            lambda: {one.name: one.generation for one in store.list(bucket, pattern.partition("*")[0], pattern)},
            clock,
            age_s,
        )
        return said or {}


class _Shared(Generic[_Said]):
    """The latest answer to a question that many ask; whoever finds it too old asks anew, and nobody waits for that."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_asked = False
        self._answered_at = -inf
        self._said: _Said | None = None

    def recent(self, ask: Callable[[], _Said], clock: Clock, age_s: float) -> _Said | None:
        """Get an answer at most `age_s` old, or a little older while another thread asks. Raises nothing.

        None: no answer came, or none has come yet: a thread that waited for one might miss its deadline.
        """
        with self._lock:
            old_s = clock.monotonic() - self._answered_at
            if old_s < age_s:
                return self._said
            if self._is_asked:
                return self._said if old_s < STALE_AGES * age_s else None
            self._is_asked = True
        said: _Said | None = None
        try:
            said = ask()
        except OrchestratorError:
            pass  # it is asked again after as long
        except Exception:
            log.exception("a list that the runs share")  # a bug in ours ends no run that could train on
        finally:
            with self._lock:
                self._said, self._answered_at, self._is_asked = said, clock.monotonic(), False
        return said


def _running(provider: VmProvider) -> tuple[Listing, Set[VmRef]]:
    listing = provider.list_billable()
    return listing, frozenset(item.ref for item in listing.found if item.runs)
