"""A local cloud on which one command after another is struck, and what has to hold after each."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

from infra.gcp.storage import Buckets
from infra.localcloud.http.recording import FILE_VARIABLE
from orchestrator.domain.names import results_prefix
from orchestrator.domain.runs import RunState, Stage
from orchestrator.ledger.ledger import Ledger
from orchestrator.running.stages.collect import MANIFEST, Manifest
from tests.e2e.conftest import IMAGE_PYTHON, QUICK, Finished, Orchestrate, kill_hard, wait_until
from tests.e2e.struck.strike import SIGNALS, Point, Strike, points, recorded
from tests.fork_server import COMMAND, STAND_IN_JOB, forking_python
from tests.local_cloud import LocalCloud, running
from trainer.record.record import RECORD_NAME, load_record

TIMEOUT_S = 300.0
LAUNCH = ("launch", "--accel", "t4", *QUICK)
CODES = {0, 1, 2, 3, 4, 5, 6, 130}
"""The exit codes that the command line documents."""
UNEXPLAINED_USD = Decimal("0.02")
"""So much more than the cloud's meter the ledger may say of a case: seconds of looking, a cent of rounding up."""
OF_NO_RUN_USD = Decimal("0.0001")
"""So much less: requests to list buckets that belong to no run."""
COMMANDS = {
    "launch": LAUNCH,
    "recover": ("recover", "--json"),
    "teardown": ("teardown", "--all", "--yes", "--json"),
}


@dataclass
class Outcome:
    """How a case ended. `stage`: where the struck command left the run; `broken`: what did not hold, in sentences."""

    strike: Strike
    code: int = 0
    stage: str = "no run"
    hit: bool = True
    over_usd: Decimal = Decimal(0)
    seconds: float = 0.0
    broken: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        ended = (
            f"{self.strike}: exit {self.code}{'' if self.hit else ', not hit'}, in {self.stage}, {self.seconds:.0f} s"
        )
        return "\n    BROKEN ".join([ended, *self.broken])


class Bench:
    """Cases follow each other on one emptied cloud, each with a state folder of its own."""

    def __init__(self, folder: Path, cloud: LocalCloud, python: Path) -> None:
        self._folder = folder
        self._cloud = cloud
        self._python = python
        self._cases = 0

    def known(self, *commands: str) -> dict[str, list[Point]]:
        """The points of these commands, of one undisturbed run of each."""
        return {command: self._points(command) for command in commands}

    def _points(self, command: str) -> list[Point]:
        orchestrate = self._fresh()
        if command == "launch":  # what is made once is there
            orchestrate.run(*LAUNCH)
            orchestrate = self._fresh()
        else:
            _abandon(orchestrate)
        log = orchestrate.home / "calls"
        ended = orchestrate.finish(orchestrate.start_under(recorded(log), *COMMANDS[command]), TIMEOUT_S)
        assert ended.code in (0, 1), ended.err
        return points(log, orchestrate.home / "local")

    def _fresh(self) -> Orchestrate:
        self._cloud.reset()
        self._cases += 1
        place = self._folder / str(self._cases)
        (place / "work").mkdir(parents=True)
        orchestrate = Orchestrate(place / "home", place / "work", self._python)
        local = orchestrate.home / "local"
        local.mkdir(parents=True, mode=0o700)
        (local / "cloud").symlink_to(self._cloud.cloud_json.parent)
        for made_once in ("datasets", "payload"):
            (self._folder / made_once).mkdir(exist_ok=True)
            (local / made_once).symlink_to(self._folder / made_once)
        return orchestrate

    def live(self, strike: Strike) -> Outcome:
        """Strike the command, go on as documented, and ask the cloud and the ledger what came of it."""
        orchestrate, outcome, began = self._fresh(), Outcome(strike), time.monotonic()
        if strike.command != "launch":
            _abandon(orchestrate)
        try:
            self._go_through(orchestrate, outcome)
        except subprocess.TimeoutExpired as late:
            outcome.broken.append(f"did not end within {late.timeout:.0f} s: {late.cmd}")
            return outcome
        outcome.broken += [*_left(orchestrate), *_lost(orchestrate, Buckets(self._cloud.clients()))]
        metered_usd = sum((Decimal(row["usd"]) for row in orchestrate.control("meter")["rows"]), Decimal(0))
        spent_usd = Decimal(orchestrate.run("budget", "--json").json["spent_usd"])
        outcome.over_usd = spent_usd - metered_usd
        if not -OF_NO_RUN_USD <= outcome.over_usd <= UNEXPLAINED_USD:
            outcome.broken.append(f"the meter says {metered_usd}, the ledger {spent_usd}")
        outcome.seconds = time.monotonic() - began
        return outcome

    def _go_through(self, orchestrate: Orchestrate, outcome: Outcome) -> None:
        struck = _strike(orchestrate, outcome)
        outcome.code = struck.code
        if struck.code != -signal.SIGKILL:
            outcome.broken += _unlike_ours("the struck command", struck)
        runs = orchestrate.runs()
        outcome.stage = runs[0].stage.value if runs else "no run"
        following = [COMMANDS["recover"]] if outcome.strike.then == "recover" else []
        if outcome.strike.then == "attach" and runs and runs[0].state is RunState.ACTIVE:
            following = [("attach", runs[0].id, "--json")]
        for argv in (*following, COMMANDS["teardown"]):
            done = orchestrate.finish(orchestrate.start(*argv), TIMEOUT_S)
            outcome.broken += _unlike_ours(argv[0], done)
        if done.code != 0 or done.json["billable_remaining"] != 0:
            outcome.broken.append(f"teardown --all ended with {done.code}: {done.err[-300:]}")


def _abandon(orchestrate: Orchestrate) -> None:
    """A run that trains and is driven by nobody."""
    launched = orchestrate.start_unforked(*LAUNCH, "--epochs", "100")
    orchestrate.wait_for_run(lambda run: run.stage is Stage.TRAIN, 120)
    kill_hard(launched)


def _strike(orchestrate: Orchestrate, outcome: Outcome) -> Finished:
    strike, log = outcome.strike, orchestrate.home / "calls"
    started = orchestrate.start_under(strike.prefix(log), *COMMANDS[strike.command])
    if strike.how in SIGNALS:
        wait_until(lambda: started.poll() is not None or _events(orchestrate) >= strike.events, 120)
        outcome.hit = started.poll() is None
        if outcome.hit:
            os.kill(started.pid, getattr(signal, strike.how))
    ended = orchestrate.finish(started, TIMEOUT_S)
    if strike.point is not None:
        outcome.hit = ended.code == -signal.SIGKILL or "(INJECTED)" in log.read_text(errors="replace")
    return ended


def _events(orchestrate: Orchestrate) -> int:
    runs = orchestrate.runs()
    return len(orchestrate.events(runs[0].id)) if runs else -1


def _unlike_ours(what: str, done: Finished) -> Iterator[str]:
    if "Traceback" in done.err + done.out:
        yield f"{what} ended in a traceback: {(done.err + done.out)[-1500:]}"
    if done.code not in CODES:
        yield f"{what} ended with {done.code}: {done.err[-300:]}"


def _left(orchestrate: Orchestrate) -> Iterator[str]:
    """What exists or bills in the cloud, and what is open in the ledger."""
    for kind in ("node", "instance", "disk"):
        for item in orchestrate.inventory(kind):
            yield f"{kind} {item['name']} is left"
    for row in orchestrate.control("meter")["rows"]:
        if row["to"] is None and row["kind"] != "bucket":
            yield f"{row['kind']} {row['name']} bills"
    for run in orchestrate.runs():
        if run.state is RunState.ACTIVE or run.stage is not Stage.DONE:
            yield f"{run.id} is {run.state.value} in {run.stage.value}"


def _lost(orchestrate: Orchestrate, buckets: Buckets) -> Iterator[str]:
    """Records whose manifest is in the bucket, and that are not here; damage of the ledger."""
    path = orchestrate.home / "local" / "ledger.db"
    if not path.exists():
        return
    with closing(Ledger(path)) as ledger:
        yield from (f"the ledger is damaged: {damage}" for damage in ledger.damage())
        for attempt in ledger.attempts():
            run = ledger.run(attempt.run)
            prefix = results_prefix(run.experiment, run.id, attempt.number)
            bucket = next((one.name for one in buckets.buckets() if attempt.zone.startswith(one.region)), "")
            if not bucket or not buckets.list(bucket, f"{prefix}/{MANIFEST}"):
                continue
            manifest = Manifest.model_validate_json(buckets.read(bucket, f"{prefix}/{MANIFEST}"))
            if RECORD_NAME not in {file.name for file in manifest.files}:
                continue
            if run.record is None:
                yield f"the record of {run.id}, {run.state.value}, stayed in the bucket"
            else:
                load_record(Path(run.record))


@contextmanager
def bench(folder: Path) -> Iterator[Bench]:
    """A cloud of its own in that folder, whose VMs run the stand-in job."""
    image = folder / "python3"
    image.write_text(IMAGE_PYTHON.format(job=shlex.quote(str(STAND_IN_JOB)), python=shlex.quote(sys.executable)))
    image.chmod(0o755)
    os.environ.setdefault(FILE_VARIABLE, str(folder / "traffic.jsonl"))
    (folder / "forked").mkdir()
    with (
        forking_python(folder / "forked", COMMAND) as python,
        running(folder / "cloud", "--vm-python", str(image)) as cloud,
    ):
        yield Bench(folder / "cases", cloud, python)
