"""Real commands, struck at chosen system calls: killed there, or told that the disk is full or broken; or signalled.

    python -m tests.e2e.struck                                  # cases 0 to 99
    python -m tests.e2e.struck 100:400 --kinds SIGKILL          # others; of these kinds only
    python -m tests.e2e.struck 17                               # one again

First each command is run undisturbed under strace, which tells at which calls it can be struck. Each case then draws
one by its number, strikes a command on an empty local cloud with the stand-in job, goes on by `recover`, by `attach` or
not at all, and ends with `teardown --all`. Afterwards: by the cloud's inventory and meter nothing bills, the ledger
says what the meter says, no record that is in the bucket is missing, no command ended in a traceback. Needs strace.
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
from collections import Counter
from pathlib import Path

import click

from tests.e2e.struck.bench import COMMANDS, Outcome, bench
from tests.e2e.struck.strike import SIGNALS, draw

KINDS = (*["SIGKILL"] * 6, "EIO", "ENOSPC", "ENOSPC", "ENOSPC+", *SIGNALS)
"""How a case may be struck, each as often as it is here."""


def main() -> int:
    """1 if something did not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="?", default="0:100", help="one, or FIRST:END")
    parser.add_argument("--kinds", help=f"of {', '.join(dict.fromkeys(KINDS))}; all without")
    told = parser.parse_args()
    first, _, end = told.cases.partition(":")
    kinds = tuple(told.kinds.split(",")) if told.kinds else KINDS
    outcomes: list[Outcome] = []
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell starts what is in the background without
    with tempfile.TemporaryDirectory(prefix="struck-") as folder, bench(Path(folder)) as made:
        known = made.known(*COMMANDS)
        for number in range(int(first), int(end or int(first) + 1)):
            outcome = made.live(draw(random.Random(number), kinds, known))
            outcomes.append(outcome)
            click.echo(f"{number}: {outcome}")
    for title, count in sorted(Counter(f"{one.strike.how} in {one.stage}" for one in outcomes if one.hit).items()):
        click.echo(f"{title:24} {count:4}")
    broken = sum(bool(one.broken) for one in outcomes)
    worst_usd = max((one.over_usd for one in outcomes), default=0)
    click.echo(f"{len(outcomes)} cases, {sum(one.hit for one in outcomes)} hit, {broken} broke something")
    click.echo(f"the ledger is at most ${worst_usd:.4f} a case above the meter")
    return bool(broken)


if __name__ == "__main__":
    sys.exit(main())
