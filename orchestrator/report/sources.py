"""Which records are to be compared? Runs, experiments and files by name; the ledger adds accelerator and money."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from orchestrator.domain.money import ZERO
from orchestrator.domain.runs import AttemptState, Run
from orchestrator.errors import UsageError
from orchestrator.ledger.ledger import Ledger
from orchestrator.report.run_metrics import Source
from orchestrator.report.stage_times import stage_times
from trainer.errors import RecordError
from trainer.record.record import RECORD_NAME, Record, load_record


def sources_named(names: Sequence[str], ledger: Ledger) -> list[Source]:
    """The records of runs, experiments and files; without a name those of the latest experiment that has any.

    Raises UsageError for an unknown name, a run or experiment without a record, a file that is no record.
    """
    if not names:
        return sources_of_runs(_latest(ledger), ledger)
    found: dict[str, Source] = {}
    brought_home = {Path(run.record).resolve(): run for run in ledger.runs() if run.record}
    for name in names:
        for source in _sources(name, ledger, brought_home):
            found.setdefault(source.path, source)  # named twice is compared once
    return list(found.values())


def sources_of_runs(runs: Iterable[Run], ledger: Ledger | None) -> list[Source]:
    """The records of those runs that have one. Without a ledger what they cost is not known. Raises UsageError."""
    return [_of_run(run, ledger) for run in runs if run.record]


def _sources(name: str, ledger: Ledger, brought_home: Mapping[Path, Run]) -> list[Source]:
    path = Path(name)
    if path.is_dir():
        path = path / RECORD_NAME
    if path.exists():
        return [_of_file(path, ledger, brought_home)]
    if name.startswith("e-"):
        runs = ledger.runs(ledger.experiment(name).id)
        found = sources_of_runs(runs, ledger)
        if not found:
            raise UsageError(
                f"no run of experiment {name} has a record yet", f"`orchestrate status {runs[0].id}` says why"
            )
        return found
    if not name.startswith("r-"):
        raise UsageError(f"{name!r} is no run, no experiment and no record file", "`orchestrate status` lists the runs")
    run = ledger.run(name)
    if run.record is None:
        raise UsageError(
            f"run {name} has no record: it is {run.state.value}", f"`orchestrate fetch {name}` looks for one"
        )
    return [_of_run(run, ledger)]


def _latest(ledger: Ledger) -> list[Run]:
    for experiment in reversed(ledger.experiments()):
        runs = ledger.runs(experiment.id)
        if any(run.record for run in runs):
            return runs
    raise UsageError(
        "there is no run with a record yet", "launch one, or name record files: `orchestrate compare a/record.json ..`"
    )


def _of_run(run: Run, ledger: Ledger | None) -> Source:
    path = run.record or ""
    attempts = ledger.attempts(run.id) if ledger else []
    settled = bool(attempts) and all(attempt.state is AttemptState.SETTLED for attempt in attempts)
    made_by = next((attempt for attempt in attempts if attempt.number == run.attempt), None)
    side_usd = sum((attempt.storage_usd for attempt in attempts), ZERO)
    return Source(
        path=path,
        record=_load(path, f"`orchestrate fetch {run.id}` brings it again"),
        accelerator=run.spec.accelerator.name,
        usd=sum((attempt.settled_usd or ZERO for attempt in attempts), side_usd) if settled else None,
        usd_per_hour=made_by.rate.usd_per_hour if made_by else None,
        side_usd=side_usd if settled else None,
        is_bound=any(attempt.rate.is_upper_bound for attempt in attempts),
        region=made_by.zone.region if made_by else None,
        dataset_bytes=run.spec.dataset_bytes,
        stages=stage_times(ledger.events(run.id), attempts) if ledger else (),
        looks=run.looks,
    )


def _of_file(path: Path, ledger: Ledger, brought_home: Mapping[Path, Run]) -> Source:
    """A record file that a run of this ledger has brought home is that run's."""
    run = brought_home.get(path.resolve())
    if run is not None:
        return _of_run(run, ledger)
    return Source(path=str(path), record=_load(path, "name a record.json that the trainer wrote"))


def _load(path: str | Path, hint: str) -> Record:
    try:
        return load_record(path)
    except RecordError as cause:
        raise UsageError(str(cause), hint) from cause
