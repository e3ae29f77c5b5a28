"""`accelerators`, `workloads`, and errors of a broken configuration."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.domain.accelerators import accelerator
from orchestrator.domain.prices import catalog_prices
from tests.orchestrator.cli.conftest import LOCAL, Done, Shell

WORKLOAD_NOTES = (
    "mnist-cnn: published without an accuracy: seconds per epoch of 60,000 images at global batch 256 / 512 / 1024 "
    "were 6 / 5 / 4 on a GPU and 6 / 3 / 2 on a TPU, first epoch left out",
    "mnist-mlp: 96.26 % after 20 epochs of 60,000 images at batch 100, about 135 s on a 2.3 GHz laptop i5",
)


def test_workloads_lists_settings_and_what_others_published(run_cli: Shell) -> None:
    """As an object; the table shows the same."""
    done = run_cli("workloads", "--json")
    assert (done.exit, done.stderr) == (0, "")
    by_name = {item["name"]: item for item in done.json["workloads"]}
    assert sorted(by_name) == ["cats-vs-dogs", "flowers", "mnist-cnn", "mnist-mlp", "mnist-official", "ucf101"]
    cnn, mlp = by_name["mnist-cnn"], by_name["mnist-mlp"]
    assert cnn == {
        "name": "mnist-cnn",
        "title": "MNIST digits, CNN with two convolutions (batch-size sweep, GPU v TPU)",
        "data_kind": "mnist",
        "batch_size": 256,
        "epochs": 5,
        "learning_rate": 0.001,
        "published": {"test_accuracy": None, "note": WORKLOAD_NOTES[0].removeprefix("mnist-cnn: ")},
    }
    assert (mlp["name"], mlp["batch_size"], mlp["epochs"], mlp["published"]["test_accuracy"]) == (
        "mnist-mlp", 100, 20, 0.9626,
    )  # fmt: skip
    table = " ".join(run_cli("workloads").stdout.split())
    assert [note for note in WORKLOAD_NOTES if note not in table] == []


def test_accelerators_shows_the_cheapest_zone_and_json_all_of_them(run_cli: Shell) -> None:
    """v3-8 in us-central1 is $8.00 an hour, with its address $8.005."""
    row = next(line for line in run_cli("accelerators").stdout.splitlines() if line.strip().startswith("v3-8"))
    device, place, price = (
        ["v3-8", "TPU", "v3,", "4", "chips", "8", "32", "123"],
        ["us-central1-a", "3"],
        ["8.005", "2.045"],
    )
    assert row.split() == [*device, *place, *price, "list", "2026-07-16"]
    listed = run_cli("accelerators", "--json").json["accelerators"]
    tpu = next(item for item in listed if item["name"] == "v3-8")
    assert {name: tpu[name] for name in ("api", "chips", "replicas", "memory_gib", "peak_tflops", "spot_only")} == {
        "api": "tpu", "chips": 4, "replicas": 8, "memory_gib": 32, "peak_tflops": 123.0, "spot_only": False,
    }  # fmt: skip
    assert [zone["zone"] for zone in tpu["zones"]][:2] == ["us-central1-a", "us-central1-b"]
    assert tpu["zones"][0]["usd_per_hour"] == "8.005"
    assert all(zone["sources"] and zone["as_of"] for item in listed for zone in item["zones"])


def test_spot_leaves_out_zones_without_a_spot_price(run_cli: Shell) -> None:
    """southamerica-west1-a has a v6e-1, and no known spot price for it."""

    def zones(*flags: str) -> set[str]:
        listed = run_cli("accelerators", "--json", *flags).json["accelerators"]
        return {zone["zone"] for item in listed if item["name"] == "v6e-1" for zone in item["zones"]}

    assert zones() - zones("--spot") == {"southamerica-west1-a"}
    assert zones("--region", "us-east1") == zones("--zone", "us-east1-d") == {"us-east1-d"}


@pytest.mark.parametrize(
    ("name", "documented"),
    [
        ("v2-8", {"us-central1-b", "us-central1-c", "europe-west4-a", "asia-east1-c"}),
        ("v3-8", {"us-central1-a", "us-central1-b", "europe-west4-a"}),
        ("v5litepod-4", {"us-central1-a", "us-south1-a", "us-west1-c", "us-west4-a", "europe-west4-b"}),
    ],
)
def test_the_zones_that_google_names_are_tried_first(name: str, documented: set[str]) -> None:
    """docs.cloud.google.com/tpu/docs/regions-zones; of v2-8 and v3-8 there are no others."""
    zones = catalog_prices().zones(accelerator(name))
    assert set(zones[: len(documented)]) == documented
    assert zones[len(documented) :] == [] or name == "v5litepod-4"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (
            ("--region", "mars"),
            "error: --region: the catalog has no offer in 'mars'\n"
            "  next: `orchestrate accelerators` lists zones and regions\n",
        ),
        (
            ("--region", "us-centrall1"),
            "error: --region: the catalog has no offer in 'us-centrall1'\n"
            "  next: did you mean us-central1, us-central2",
        ),
        (
            ("--region", "us-west1", "--zone", "us-east1-d"),
            "error: nothing is offered in zone us-east1-d of region us-west1\n  next: leave out one of the two\n",
        ),
    ],
)
def test_an_unknown_place_is_a_usage_error(run_cli: Shell, flags: tuple[str, ...], message: str) -> None:
    """With the nearest names, if there are any."""
    done = run_cli("accelerators", *flags)
    assert (done.exit, done.stdout) == (2, "")
    assert done.stderr.startswith(LOCAL + message)


@pytest.mark.parametrize(
    ("command", "text", "says"),
    [
        ("status", "zones = [", "orchestrate.toml cannot be read: "),
        (
            "budget",
            "zoness = []",
            "orchestrate.toml: zoness = []: unknown key\n  next: known keys: project, ",
        ),
        ("status", "max_hours = nan", "orchestrate.toml: max_hours = NaN: is not an amount"),
        ("status", "price_max_age_days = 3.5", "orchestrate.toml: price_max_age_days = 3.5: is not a whole number"),
        ("compare", 'project = "X"', "orchestrate.toml: project = 'X': is not a Google Cloud project id"),
    ],
)
def test_a_broken_configuration_is_a_usage_error(run_cli: Shell, command: str, text: str, says: str) -> None:
    """Exit 2 and the file's name, from every command that reads it."""
    (run_cli.folder / "orchestrate.toml").write_text(text)
    done = run_cli(command)
    assert (done.exit, done.stdout) == (2, "")
    assert done.stderr.startswith(f"error: {run_cli.folder}/")
    assert says in done.stderr


def test_a_state_folder_that_cannot_be_made_is_a_usage_error(run_cli: Shell) -> None:
    """Here a file stands in its way; root may write anywhere else."""
    run_cli.home.write_text("")
    done = run_cli("status")
    assert done == Done(
        2,
        "",
        f"error: the state folder {run_cli.home}/local cannot be made: Not a directory\n"
        "  next: set ORCHESTRATE_HOME to a folder you may write\n",
    )


def test_a_ledger_that_is_none_is_said_with_a_way_out(run_cli: Shell) -> None:
    """Exit 1: something rented may not be known here any more."""
    path: Path = run_cli.home / "local" / "ledger.db"
    path.parent.mkdir(parents=True)
    path.write_text("this is no SQLite file, and long enough to be seen as such" * 20)
    done = run_cli("status")
    assert (done.exit, done.stdout) == (1, "")
    assert done.stderr.startswith(f"error: the ledger {path} cannot be read: ")
    assert LOCAL not in done.stderr
