"""Accelerators of several VMs: names, sizes and prices, and which instances a VM's name stands for."""

from __future__ import annotations

import pytest

from orchestrator.domain.accelerators import (
    Accelerator,
    Provisioning,
    accelerator,
    known_accelerator,
    named_accelerators,
)
from orchestrator.domain.names import nodes_of_vm, run_of_vm, vm_name, vm_of_node
from orchestrator.domain.prices import catalog_prices
from orchestrator.errors import UsageError

ZONE = "us-central1-a"


def test_two_vms_have_twice_of_everything() -> None:
    """GPUs, replicas, workers; and strategy and name say so."""
    one, two = accelerator("t4x2"), accelerator("t4x2-n2")
    assert (two.name, two.chips, two.replicas, two.workers, two.nodes) == ("t4x2-n2", 4, 4, 2, 2)
    assert (two.strategy, two.title) == ("multiworker", f"{one.title} in each of 2 VMs")
    assert (two.machine_type, two.boot_disk_gib) == (one.machine_type, one.boot_disk_gib)
    assert two.replica_memory_bytes == one.replica_memory_bytes
    assert two.quota(Provisioning.ON_DEMAND) == one.quota(Provisioning.ON_DEMAND)


@pytest.mark.parametrize("name", ["t4", "l4", "a100-40x2"])
@pytest.mark.parametrize("nodes", [2, 8])
@pytest.mark.parametrize("terms", [Provisioning.ON_DEMAND, Provisioning.SPOT])
def test_n_vms_cost_exactly_n_times_as_much(name: str, nodes: int, terms: Provisioning) -> None:
    """Machine, GPUs, disks and addresses, each of them; wherever one is offered, so are several."""
    prices, one, many = catalog_prices(), accelerator(name), accelerator(f"{name}-n{nodes}")
    assert prices.zones(many) == prices.zones(one)
    zone = prices.zones(one)[0]
    parts, all_parts = (prices.parts(item, zone, terms) for item in (one, many))
    assert [(part.name, part.count * nodes, part.price) for part in parts] == [
        (part.name, part.count, part.price) for part in all_parts
    ]
    rates = [prices.rate(item, zone, terms).usd_per_hour for item in (one, many)]
    assert round(rates[0] * nodes, 20) == round(rates[1], 20)


def test_a_ledger_has_it_by_its_name() -> None:
    """And a name of too many, or of what is no GPU, is one that the catalog does not have."""
    assert Accelerator.from_text("t4-n3") == accelerator("T4-N3")
    assert accelerator("T4-N3").nodes == 3
    assert [known_accelerator(name) for name in ("t4-n1", "t4-n9", "t4-n02", "v3-8-n2", "t5-n2")] == [None] * 5


@pytest.mark.parametrize(
    ("accel", "nodes", "said"),
    [
        ("v3-8", 2, "v3-8 is a TPU"),
        ("ct6e-standard-4t", 2, "is a TPU"),
        ("host:me@10.0.0.1", 2, "is a machine of your own"),
        ("t4", 9, "9 is not between 1 and 8"),
        ("t4-n2", 2, "t4-n2 says how many VMs already"),
        ("t4-n9", 1, "9 is not between 1 and 8"),
        ("v3-8-n2", 1, "v3-8 is a TPU"),
    ],
)
def test_what_cannot_be_several_vms_is_refused(accel: str, nodes: int, said: str) -> None:
    """With a sentence that has the option and the value, and a way out."""
    with pytest.raises(UsageError, match=said) as refused:
        named_accelerators([accel], nodes)
    assert refused.value.sentence.startswith("--nodes: ")
    assert refused.value.hint


def test_one_and_several_can_be_compared_and_none_is_given_twice() -> None:
    """`--accel t4,t4-n2`; what --nodes makes of a name is compared with the others, too."""
    assert [item.name for item in named_accelerators(["t4", "t4-n2"])] == ["t4", "t4-n2"]
    with pytest.raises(UsageError, match="t4-n2 is given twice"):
        named_accelerators(["t4-n2", "T4-N2"])


def test_a_vms_name_says_which_instances_it_is() -> None:
    """From the name alone: recover and teardown know no more of a VM of a lost ledger."""
    name = vm_name("e-abc", "r-def", 3, ZONE, 2)
    assert name == f"{vm_name('e-abc', 'r-def', 3, ZONE)}-n2"
    assert nodes_of_vm(name) == (f"{name}-w0", f"{name}-w1")
    for node in nodes_of_vm(name):
        assert (vm_of_node(node), nodes_of_vm(node), run_of_vm(node)) == (name, (node,), ("r-def", 3))
    assert (vm_of_node(name), run_of_vm(name)) == (name, ("r-def", 3))
    assert len(nodes_of_vm(vm_name("e-7k2m9x", "r-7k2m9x", 99, ZONE, 8))[-1]) <= 63
    single = vm_name("e-abc", "r-def", 3, ZONE)
    assert (nodes_of_vm(single), vm_of_node(single)) == ((single,), single)


@pytest.mark.parametrize("name", ["someones-n2", "someones-n2-w1", "oc-x-y-a1-zzzz-n2", "oc-doctor-n4-w0"])
def test_another_name_is_itself(name: str) -> None:
    """Only what `vm_name` makes is several."""
    assert (nodes_of_vm(name), vm_of_node(name)) == ((name,), name)
