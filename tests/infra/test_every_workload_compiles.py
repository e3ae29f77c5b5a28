"""Google's TPU compiler as the judge: the training step of every workload compiles for every TPU, with both engines.

Small samples, batches of two. What the compiler said is kept in the user's cache folder, by the content of the trainer
and the versions of what compiles: `make test-compiler` takes minutes after a change there, else seconds. ResNet-50,
which has no small form, takes as long as half of all others together, and is compiled by `make bench`.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

import platformdirs
import pytest

from infra.compiler.libtpu import Libtpu, Limits, Model, compiler_for, open_libtpu
from orchestrator.compiling.step import Outcome
from trainer.workloads import list_workloads

pytestmark = [
    pytest.mark.compiler,
    pytest.mark.timeout(900),
    pytest.mark.skipif(find_spec("libtpu") is None, reason="libtpu exists for x86_64 Linux only"),
]
TPUS = ("v2:2x2", "v3:2x2", "v4:2x2x1 megacore", "v5e:2x2", "v6e:2x2")
ONLY_JAX = ("v5p:2x2x1", "tpu7x:2x2x1")
SMALL = {"image_size": 32, "sequence_length": 16}
SIZES = {"bert-base": ":layers=1,width=64,heads=2", "transformer-lm": ":layers=1,width=64,heads=2"}
NAMES = [workload.name for workload in list_workloads() if workload.name != "resnet50"]
LIMITS = Limits()
KEPT = platformdirs.user_cache_path("orchestrate-tests") / "compiled"


@pytest.fixture(scope="module")
def libtpu() -> Iterator[Libtpu]:
    with open_libtpu(LIMITS) as opened:
        yield opened


@pytest.mark.parametrize("engine", ["tensorflow", "jax"])
@pytest.mark.parametrize("name", NAMES)
def test_the_step_compiles_for_every_tpu(name: str, engine: str, libtpu: Libtpu) -> None:
    model = Model(name + SIZES.get(name, ""), "", engine, sizes=SMALL)
    topologies = TPUS + (ONLY_JAX if engine == "jax" else ())
    with compiler_for(model, KEPT, libtpu, LIMITS) as compiler, ThreadPoolExecutor(2) as pool:
        steps = list(pool.map(lambda topology: compiler.compile(topology, 2), topologies))
    refused = {step.topology: step.words for step in steps if step.outcome is not Outcome.COMPILED}
    assert refused == {}
    assert all(step.program and step.program.flops > 0 for step in steps)
