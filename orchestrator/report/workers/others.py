"""The records of a run's workers besides the first, whose record is the run's."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from orchestrator.domain.names import of_worker
from trainer.errors import RecordError
from trainer.record.record import RECORD_NAME, Record, load_record, worker_dir


@dataclass(frozen=True)
class Others:
    """What the other workers recorded, in their order; `missing`: numbers of those without a record."""

    records: tuple[Record, ...] = ()
    missing: tuple[int, ...] = ()


def missing_sentence(missing: Sequence[int]) -> tuple[str, ...]:
    """What is said of workers without a record; nothing where there are none."""
    if not missing:
        return ()
    named = ", ".join(map(str, missing))
    return (f"no record of worker {named} is here: how fast it was is not known",)


def others_of(path: Path, record: Record) -> Others:
    """The records beside the first worker's, where `collect` puts them, or below it, where the trainer writes them.

    One that is damaged, or of another run or training, is missing.
    """
    if record.worker:
        return Others()
    count = record.device.workers if record.device else 1
    found = {worker: _record(path.parent, record, worker) for worker in range(1, count)}
    return Others(
        tuple(each for each in found.values() if each is not None),
        tuple(worker for worker, each in found.items() if each is None),
    )


def _record(folder: Path, first: Record, worker: int) -> Record | None:
    for place in (of_worker(str(folder), worker), worker_dir(str(folder), worker)):
        with suppress(RecordError):
            found = load_record(Path(place, RECORD_NAME))
            if (found.run_id, found.worker, len(found.parts)) == (first.run_id, worker, len(first.parts)):
                return found
    return None
