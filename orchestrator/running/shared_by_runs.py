"""What the runs of one process share, so that a thousand cost little more than one."""

from __future__ import annotations

from orchestrator.running.crowd import Crowd, Stops
from orchestrator.running.quota_lines import QuotaLines
from orchestrator.running.shared_lists import SharedLists
from orchestrator.running.starting_line import StartingLine


class SharedByRuns:
    """One for each process that drives runs. Each run has a thread of its own, which sleeps nearly all the time."""

    def __init__(self) -> None:
        self.crowd = Crowd()
        self.stops = Stops(self.crowd)
        self.lists = SharedLists(self.crowd)
        self.starts = StartingLine()
        self.quota = QuotaLines()
