"""How fast each worker of a slice was, from the records of all of them."""

from __future__ import annotations

from orchestrator.report.workers.others import Others, missing_sentence, others_of
from orchestrator.report.workers.timing import LEAST_SHARE, WorkerTiming, stragglers, timings_of_record, worker_timings

__all__ = [
    "LEAST_SHARE",
    "Others",
    "WorkerTiming",
    "missing_sentence",
    "others_of",
    "stragglers",
    "timings_of_record",
    "worker_timings",
]
