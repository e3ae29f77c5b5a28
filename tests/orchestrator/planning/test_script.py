"""A script as it is launched: what travels, what identifies it, and what is refused before anything is rented."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from orchestrator.domain.quote import kept_bytes, usage
from orchestrator.domain.runs import CHECKPOINT_BYTES, Engine
from orchestrator.errors import UsageError
from orchestrator.planning.extend import check_extendable
from orchestrator.planning.options import LaunchOptions
from orchestrator.planning.script import ScriptWork, read_script
from tests.fakes.world import World


@pytest.fixture
def script(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    (folder / "runs").mkdir(parents=True)
    (folder / "train.py").write_text("import helper\n")
    (folder / "helper.py").write_text("x = 1\n")
    (folder / "runs" / "big.bin").write_bytes(b"x" * 1000)
    (folder / ".orchestrateignore").write_text("runs/\n")
    return folder / "train.py"


def read(script: Path | None, **options: Any) -> ScriptWork | None:
    return read_script(LaunchOptions(**{"workload": "", "accel": ("l4",), "script": script, **options}))


def name(script: Path, **options: Any) -> str:
    found = read(script, **options)
    assert found is not None
    return found.name


def test_the_folder_travels_without_what_is_ignored(script: Path) -> None:
    found = read(script)
    assert found is not None
    assert sorted(found.tree.files) == ["helper.py", "train.py"]
    assert found.script.command == "python train.py"


def test_another_file_command_or_requirement_is_another_workload(script: Path) -> None:
    """Its name says so, so that nothing pairs runs of different code."""
    first = name(script)
    assert first.startswith("train.py@")
    assert name(script) == first
    assert name(script, command="python train.py --fast") != first
    (script.parent / "runs" / "big.bin").write_bytes(b"ignored")
    assert name(script) == first
    requirements = script.parent / "requirements.txt"
    requirements.write_text("jax\n")
    listed = name(script, requirements=requirements)
    requirements.write_text("jax==0.4.38\n")
    assert len({first, listed, name(script, requirements=requirements), name(script)}) == 4


def test_requirements_from_elsewhere_travel_too(script: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "r.txt"
    elsewhere.write_text("torch\n")
    found = read(script, requirements=elsewhere)
    assert found is not None
    assert found.tree.files[found.script.requirements] == b"torch\n"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"command": "python train.py {epochs}"}, "--epochs is not given"),
        ({"command": "python train.py {batch}", "epochs": None}, "--batch-size is not given"),
        ({"epochs": 3}, "the command has no {epochs}"),
        ({"batch_size": (64,)}, "the command has no {batch}"),
        ({"command": "python train.py > log"}, "no shell runs it"),
        ({"command": "python {scirpt}"}, "is no placeholder"),
        ({"learning_rate": 0.1}, "a script does not get it"),
        ({"engine": (Engine.JAX,)}, "--engine: a script does not get it"),
        ({"requirements": Path("nowhere.txt")}, "cannot be read"),
        ({"workload": "mnist-cnn"}, "--workload: a script does not get it"),
        ({"seed": 3}, "--seed: the command has no {seed}"),
        ({"checkpoint_every": "2"}, "--checkpoint-every: 2, and a script decides itself when it writes one"),
        ({"data": Path("mine")}, "--data: the command has no {data}"),
        ({"command": "python train.py {data}"}, "has {data}, and --data is not given"),
    ],
)
def test_what_would_not_reach_the_script_is_refused(script: Path, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError) as refused:
        read(script, **options)
    assert problem in refused.value.sentence


@pytest.mark.parametrize(
    ("command", "options", "room"),
    [
        ("python train.py {checkpoint}", {}, CHECKPOINT_BYTES),
        ("python train.py {checkpoint}", {"checkpoint_mib": 1000}, 2000 * 2**20),
        ("python train.py {checkpoint}", {"checkpoint_every": "none"}, 0),
        ("python train.py", {}, 0),
        ("python train.py", {"spot": True}, CHECKPOINT_BYTES),
        ("python train.py", {"spot": True, "checkpoint_every": "none"}, 0),
    ],
)
def test_checkpoints_that_the_command_names_or_spot_needs_are_kept_and_paid_for(
    world: World, script: Path, command: str, options: dict[str, Any], room: int
) -> None:
    """In the bucket, two of them: the plan says so, and reserves the room and the requests."""
    plan = world.plan("t4", script=script, command=command, **options)
    spec, bare = plan.runs[0].spec, replace(plan.runs[0].spec, checkpoint_every=None)
    assert kept_bytes(spec) - kept_bytes(bare) == room
    assert usage(spec, 3600, 0, 0).class_a - usage(bare, 3600, 0, 0).class_a == (1800 if room else 0)
    notes = " ".join(plan.notes)
    assert (f"is kept in the bucket, up to {room // 2**21} MiB at a time" in notes) == bool(room)
    is_spot = "spot" in options
    assert ("after a preemption the next VM trains from the beginning" in notes) == (is_spot and not room)
    starts_again = "a script that does not read ORCHESTRATE_CHECKPOINT starts again"
    assert (starts_again in notes) == bool(room and "{checkpoint}" not in command)
    assert "one epoch" not in notes, "how many it trains is its own affair"


def test_a_script_is_extended_where_its_checkpoints_are_kept(world: World, script: Path) -> None:
    """As a workload is; without, the refusal says how a script gets them."""
    [kept] = world.admit("t4", script=script, command="python train.py {checkpoint}")
    check_extendable(kept, None)
    [bare] = world.admit("t4", script=script)
    with pytest.raises(UsageError, match="keeps no checkpoints") as refused:
        check_extendable(bare, None)
    assert "{checkpoint} in --command" in refused.value.hint


def test_any_folder_is_its_data(world: World, script: Path, tmp_path: Path) -> None:
    """Packed once, by content; what it takes in the bucket is reserved to the byte and the request."""
    data = tmp_path / "any data"
    (data / "deep").mkdir(parents=True)
    (data / "deep" / "ü file.csv").write_text("1,2\n")
    (data / "big.bin").write_bytes(bytes(10_000))
    flags = {"script": script, "command": "python train.py {data}"}
    spec = world.plan("t4", data=data, **flags).runs[0].spec
    bare = world.plan("t4", script=script, command="python train.py").runs[0].spec
    [shard] = Path(spec.dataset_dir).glob("*.tar")
    assert (spec.dataset_bytes, spec.dataset_objects) == (shard.stat().st_size, 2)
    more, less = usage(spec, 3600, 0, 0), usage(bare, 3600, 0, 0)
    assert more.stored_bytes - less.stored_bytes == shard.stat().st_size
    assert (more.class_a - less.class_a, more.class_b - less.class_b) == (2 * 2, 4 * 2 * (1 + 4))
    written = shard.stat().st_mtime_ns
    assert world.plan("t4", data=data, **flags).runs[0].spec.dataset == spec.dataset
    assert shard.stat().st_mtime_ns == written
    (data / "deep" / "ü file.csv").write_text("1,3\n")
    assert world.plan("t4", data=data, **flags).runs[0].spec.dataset != spec.dataset


@pytest.mark.parametrize(
    ("data", "problem"),
    [("nowhere", "there is no such folder"), ("empty", "there is no file in it"), ("gs://b/x", "gs://b/x is a bucket")],
)
def test_data_that_cannot_be_packed_is_refused(
    world: World, script: Path, tmp_path: Path, data: str, problem: str
) -> None:
    (tmp_path / "empty").mkdir()
    place = Path(data) if ":" in data else tmp_path / data
    with pytest.raises(UsageError, match="--data: ") as refused:
        world.plan("t4", script=script, command="python train.py {data}", data=place)
    assert problem in refused.value.sentence


def test_its_options_are_for_a_script_alone() -> None:
    assert read(None) is None
    for options in ({"command": "python train.py"}, {"requirements": Path("r.txt")}, {"checkpoint_mib": 1}):
        with pytest.raises(UsageError, match="is for a script"):
            read(None, **options)
    with pytest.raises(UsageError, match="there is no such file"):
        read(Path("nowhere.py"))
