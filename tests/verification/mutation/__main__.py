"""The mutation score of guard, ledger, teardown, recovery and kill switches, on a random sample of changes.

    make verify STEPS=mutation                                          # 150 of them, seed 20
    .. python -m tests.verification.mutation --sample 300 --seed 7      # others
    .. python -m tests.verification.mutation --again                    # those that survived, after tests were added

The first time, or with --record, the tests are run once to see which lines each of them runs. What was tried is kept in
the results' file; a change that was noticed is not tried again.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import click
import pytest

from tests.verification.mutation.mutants import sample
from tests.verification.mutation.reach import ARGUMENTS, TESTS, Reach, Recorder
from tests.verification.mutation.runner import Verdict, read, run
from tests.verification.mutation.score import judged, report

FOLDER = Path("build/mutation")


def main(argv: list[str] | None = None) -> int:
    """1 if the score is below what it is to be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", type=int, default=150)
    parser.add_argument("--seed", type=int, default=20)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--record", action="store_true", help="see anew which lines each test runs")
    parser.add_argument("--again", action="store_true", help="try those anew that survived")
    parser.add_argument("--only", nargs="*", metavar="ID", help="these alone, anew")
    parser.add_argument("--results", type=Path, default=FOLDER / "results.jsonl")
    told = parser.parse_args(argv)
    reach = FOLDER / "reach.json"
    if told.record or not reach.exists():
        recorder = Recorder(reach.absolute())
        pytest.main([*ARGUMENTS, *TESTS], [recorder])
        click.echo(f"not used, because they failed: {sorted(recorder.failed)}" if recorder.failed else "")
        return 0
    drawn = sample(told.sample, told.seed)
    mutants = [one for one in drawn if one.id not in judged()]
    before = read(told.results)
    wanted = [one for one in mutants if one.id not in before]
    if told.again:
        survived = {key for key, one in before.items() if one.verdict in (Verdict.SURVIVED, Verdict.UNREACHED)}
        wanted = [one for one in mutants if one.id in survived] + wanted
    if told.only:
        wanted = [one for one in mutants if one.id in told.only]
    if wanted:
        run(wanted, Reach.read(reach), told.processes, told.results)
    trials = read(told.results)
    text, score = report([trials[one.id] for one in mutants if one.id in trials], equivalent=len(drawn) - len(mutants))
    click.echo(text)
    return 0 if score >= 0.85 else 1


if __name__ == "__main__":
    sys.exit(main())
