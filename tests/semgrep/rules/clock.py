"""What `clock.yaml` finds, and what it leaves alone. A name under which something was imported hides nothing."""

import datetime as dt
import time as clocks
from datetime import UTC, date, datetime
from time import perf_counter, sleep as wait


def now(clock):
    # ruleid: other-clock
    one = datetime.now(UTC)
    # ruleid: other-clock
    two = dt.datetime.now()
    # ruleid: other-clock
    three = date.today()
    # ruleid: other-clock
    four = clocks.time()
    # ruleid: other-clock
    five = perf_counter()
    # ruleid: other-clock
    wait(1)
    # ok: other-clock
    clock.sleep(1)
    # ok: other-clock
    return clock.now(), datetime.fromtimestamp(0, UTC), one, two, three, four, five
