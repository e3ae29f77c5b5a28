"""The rules of the house that no linter knows: sizes, first lines, who may know the time and the local cloud."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOMS = ("orchestrator", "infra", "trainer")
FILES = sorted(path for room in ROOMS for path in (ROOT / room).rglob("*.py"))
NAMES = [str(path.relative_to(ROOT)) for path in FILES]


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_file_is_short_and_says_what_it_is_for(path: Path) -> None:
    """At most 350 lines; the first line is a docstring (after the `#!` of what runs on a VM)."""
    text = path.read_text()
    assert len(text.splitlines()) <= 350
    assert ast.get_docstring(ast.parse(text)), "the first line says which question the file answers"


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_nothing_is_silenced_or_left_undone(path: Path) -> None:
    """No bare except that passes, no shell, no blind trust, no unfinished marks."""
    text = path.read_text()
    for pattern in (r"except Exception: *pass", r"except: *$", r"shell=True", r"AutoAddPolicy\(", r"TODO|FIXME|XXX"):
        assert not re.search(pattern, text, re.MULTILINE), pattern


def test_only_the_clock_knows_the_time() -> None:
    """In the orchestrator nobody reads a clock or sleeps but bootstrap's SystemClock: everything else is given one."""
    for path in FILES:
        if path.relative_to(ROOT).parts[0] == "orchestrator" and path.name != "bootstrap.py":
            assert not re.search(r"time\.(time|sleep|monotonic)\(|datetime\.now\(", path.read_text()), path


def test_only_bootstrap_and_clients_know_the_local_cloud() -> None:
    """The same code runs on Google Cloud and on the local cloud: adapters, stages and rules never ask which it is."""
    for path in FILES:
        parts = path.relative_to(ROOT).parts
        in_question = parts[:2] in {
            ("orchestrator", "running"),
            ("orchestrator", "domain"),
            ("infra", "gcp"),
            ("infra", "vm"),
        }
        if in_question and path.name not in ("clients.py", "clock.py"):
            assert not re.search(r"is_local|local_cloud|localcloud|127\.0\.0\.1", path.read_text()), path


def test_commands_are_short() -> None:
    """A command is a file of at most 80 lines, launch's plan, teardown's proof and budget's two commands aside."""
    from orchestrator.cli import COMMANDS

    long = {
        name for name in COMMANDS if len((ROOT / f"orchestrator/cli/commands/{name}.py").read_text().splitlines()) > 80
    }
    assert long <= {"launch", "teardown", "budget"}
