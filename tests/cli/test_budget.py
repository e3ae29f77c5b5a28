"""Where does the money stand, and how is the credit stated?"""

from __future__ import annotations

from decimal import Decimal

import pytest

from tests.cli.conftest import LOCAL, Shell
from tests.cli.filled import fill

NOTHING_YET = """\
credit         $300.00 (simulated dollars), no expiry stated
░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░░
█ spent          $0.00    0.0%
▒ reserved       $0.00    0.0%
░ free         $300.00  100.0%
burning nothing now
"""


def test_a_new_local_project_has_a_free_trial_s_credit(run_cli: Shell) -> None:
    """$300 of simulated dollars until a credit is stated."""
    done = run_cli("budget")
    assert (done.exit, done.stdout, done.stderr) == (0, NOTHING_YET, LOCAL)


def test_budget_set_states_the_credit_and_shows_it(run_cli: Shell) -> None:
    """With `--json` the same object as `budget --json`; the days left depend on today and are left out here."""
    done = run_cli("budget", "set", "--credit", "100", "--expires", "2090-01-31", "--spent", "12.50", "--json")
    said = done.json
    assert (done.exit, done.stderr) == (0, "")
    assert said.pop("days_left") > 20_000
    assert said == {
        "credit_usd": "100",
        "expires": "2090-01-31",
        "spent_usd": "12.5",
        "accruing_usd": "0",
        "reserved_usd": "0",
        "free_usd": "87.5",
        "burn_usd_per_hour": "0",
        "ends_at": "2090-01-31T00:00:00+00:00",
        "simulated": True,
        "runs": [],
    }
    shown = run_cli("budget", "--json").json
    assert shown.pop("days_left") > 20_000
    assert shown == said


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--credit", "5", "--spent", "6"), "--spent: $6.00 is more than the credit of $5.00"),
        (("--credit", "5", "--expires", "2020-01-01"), "--expires: 2020-01-01 is in the past"),
        (("--credit", "0.001"), "--credit: 0.001 is not an amount in whole cents up to 10000000"),
        (("--credit", "1e30"), "--credit: 1E+30 is not an amount in whole cents up to 10000000"),
        (("--credit", "-5"), "Invalid value for '--credit': '-5' is not an amount like 0.5"),
        (("--credit", "nan"), "Invalid value for '--credit': 'nan' is not an amount like 0.5"),
        (("--credit", "5", "--expires", "soon"), "Invalid value for '--expires': 'soon' does not match"),
        (("--expires", "2090-01-01"), "Missing option '--credit'"),
    ],
)
def test_a_credit_that_cannot_be_is_refused_and_nothing_is_stated(
    run_cli: Shell, flags: tuple[str, ...], sentence: str
) -> None:
    """Exit 2, a sentence that names the flag, and the budget as it was."""
    done = run_cli("budget", "set", *flags)
    assert (done.exit, done.stdout) == (2, "")
    assert f"error: {sentence}" in done.stderr
    assert run_cli("budget").stdout == NOTHING_YET


def test_an_error_with_json_is_one_object_on_stdout(run_cli: Shell) -> None:
    """A program need not read stderr."""
    done = run_cli("budget", "set", "--credit", "5", "--spent", "6", "--json")
    assert done.exit == 2
    assert done.json == {
        "error": {
            "code": "UsageError",
            "message": "--spent: $6.00 is more than the credit of $5.00",
            "hint": "",
            "exit_code": 2,
        }
    }


def test_spent_reserved_and_free_are_the_credit_exactly(run_cli: Shell) -> None:
    """To the last digit, with settled runs and one that holds its worst case; and the cost of each run."""
    ledger = run_cli.ledger()
    fill(ledger, run_cli.folder)
    held = ledger.attempt("r-cccccc", 1).reserved_usd
    ledger.close()
    said = run_cli("budget", "--json").json
    parts = [Decimal(said[name]) for name in ("spent_usd", "reserved_usd", "free_usd")]
    assert sum(parts) == Decimal(said["credit_usd"]) == 300
    assert parts[:2] == [Decimal("13.781"), held]
    assert said["runs"] == [
        _run("e-000002", "r-cccccc", "v3-8", "0", format(held, "f"), "planned"),
        _run("e-000001", "r-bbbbbb", "t4", "0.031", "0", "failed"),
        _run("e-000001", "r-aaaaaa", "v3-8", "1.25", "0", "succeeded"),
    ]


def _run(experiment: str, run: str, accelerator: str, usd: str, reserved: str, state: str) -> dict[str, object]:
    return {
        "experiment": experiment,
        "run": run,
        "accelerator": accelerator,
        "attempts": 1,
        "usd": usd,
        "reserved_usd": reserved,
        "state": state,
    }


def test_a_real_project_without_a_stated_credit_is_told_to_state_one(run_cli: Shell) -> None:
    """No API tells what is left of a credit, so nothing is guessed."""
    done = run_cli("budget", ORCHESTRATE_PROJECT="my-project-1")
    assert (done.exit, done.stdout) == (2, "")
    assert done.stderr == (
        "cloud: Google Cloud, project my-project-1\n"
        "error: no credit is stated for this project, and no API of Google's tells what is left of one\n"
        "  next: look at Billing > Credits in the console, then `orchestrate budget set --credit 300 --expires DATE "
        "--spent X`\n"
    )
