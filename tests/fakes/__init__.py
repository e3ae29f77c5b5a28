"""In-memory fakes of the ports for tests of the stages; they pass the same contract suites as `infra`.

    clock = FakeClock()
    cloud = FakeVmProvider(clock, service="tpu", create_s=30)
    cloud.capacity["us-central1-a"] = False             # NoCapacity, told by the operation
    cloud.lose_answer("create")                         # the effect happens, Unavailable is raised
    cloud.preempt(ref)
    store, shells = FakeObjectStore(), FakeShells()
    shells.on(["python3", "runner.py"], lambda argv: CommandResult(0, "{}", ""))   # first match wins

Nothing waits: `FakeClock.sleep` moves the time, and what was due by then has happened at the next look.
"""

from tests.fakes.clock import FakeClock
from tests.fakes.scheduler import FakeScheduler
from tests.fakes.shells import FakeShell, FakeShells
from tests.fakes.store import FakeObjectStore
from tests.fakes.vms import FakeVmProvider

__all__ = ["FakeClock", "FakeObjectStore", "FakeScheduler", "FakeShell", "FakeShells", "FakeVmProvider"]
