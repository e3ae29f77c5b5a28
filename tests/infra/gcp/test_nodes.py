"""Several instances as one VM: what state it is in, until when it lives, and who is asked when one fails."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from google.cloud import compute_v1

from infra.gcp.errors import Request, translate
from infra.gcp.gpu import problem_of_failed
from infra.gcp.nodes import as_one, on_each
from orchestrator.errors import (
    CloudError,
    NoCapacity,
    NotFound,
    OrchestratorError,
    PolicyDenied,
    QuotaExceeded,
    Unavailable,
    UsageError,
)
from orchestrator.ports import Vm, VmRef, VmState, Worker

REF = VmRef("us-central1-a", "oc-x-y-a1-0000-n2")
NOW = datetime(2026, 11, 24, tzinfo=UTC)
GONE = NotFound("the resource was not found")


def instance(number: int, state: VmState, raw_state: str = "") -> Vm:
    """One of the instances that a VM is; with an address while it runs."""
    address = f"10.0.0.{number}"
    workers = (Worker(0, f"34.0.0.{number}", address),) if state is VmState.READY else ()
    labels = {"oc-managed": "1", "oc-nonce": "abc"}
    ends = NOW + timedelta(hours=number) if state is VmState.READY else None
    made = NOW + timedelta(minutes=number)
    return Vm(REF.nodes[number - 1], state, raw_state or state.name, labels, workers, made, ends)


READY, CREATING, STOPPED = VmState.READY, VmState.CREATING, VmState.STOPPED
DELETING, PARTIAL, STARTING, UNKNOWN = VmState.DELETING, VmState.PARTIAL, VmState.STARTING, VmState.UNKNOWN


@pytest.mark.parametrize(
    ("first", "second", "whole"),
    [
        (READY, READY, READY),
        (CREATING, CREATING, CREATING),
        (READY, CREATING, STARTING),
        (CREATING, None, PARTIAL),
        (READY, None, PARTIAL),
        (None, READY, PARTIAL),
        (READY, STOPPED, STOPPED),
        (STOPPED, None, STOPPED),
        (READY, VmState.PREEMPTED, VmState.PREEMPTED),
        (READY, UNKNOWN, UNKNOWN),
        (UNKNOWN, STOPPED, STOPPED),
        (DELETING, DELETING, DELETING),
        (DELETING, None, DELETING),
        (UNKNOWN, None, PARTIAL),
        (None, UNKNOWN, PARTIAL),
        (DELETING, READY, PARTIAL),
        (CREATING, DELETING, PARTIAL),
    ],
)
def test_the_state_of_a_vm_is_that_of_all_its_instances(
    first: VmState | None, second: VmState | None, whole: VmState
) -> None:
    """READY only when all run; never DELETING while one is left that nobody has asked to go."""
    found = [GONE if state is None else instance(number, state) for number, state in ((1, first), (2, second))]
    assert as_one(REF, found).state is whole


def test_it_is_absent_only_when_none_of_them_exists() -> None:
    """Absence is what the API says of each."""
    with pytest.raises(NotFound):
        as_one(REF, [GONE, GONE])


def test_its_end_is_the_last_and_unknown_while_one_has_none() -> None:
    """`armed` of the run limit looks at it: one instance without a limit is a VM without one."""
    assert as_one(REF, [instance(1, READY), instance(2, READY)]).terminates_at == NOW + timedelta(hours=2)
    endless = replace(instance(2, READY), terminates_at=None)
    assert as_one(REF, [instance(1, READY), endless]).terminates_at is None
    assert as_one(REF, [instance(1, READY), GONE]).terminates_at is None


def test_it_may_bill_as_long_as_one_of_them_may() -> None:
    """It is STOPPED when one is, and the others run on."""
    stopped = replace(instance(2, STOPPED), may_bill=False)
    assert as_one(REF, [instance(1, READY), stopped]).may_bill
    assert not as_one(REF, [replace(instance(1, STOPPED), may_bill=False), stopped]).may_bill


def test_its_workers_are_all_of_them_in_order_or_none() -> None:
    """`armed` of the timer looks at every worker: it must not see half of them and be content."""
    vm = as_one(REF, [instance(1, READY), instance(2, READY)])
    assert vm.workers == (Worker(0, "34.0.0.1", "10.0.0.1"), Worker(1, "34.0.0.2", "10.0.0.2"))
    assert as_one(REF, [instance(1, READY), instance(2, CREATING)]).workers == ()
    assert vm.created_at == NOW + timedelta(minutes=1)


def test_its_labels_are_what_all_have() -> None:
    """One of another ledger's, under such a name, is not adopted with the others."""
    other = replace(instance(2, READY), labels={"oc-managed": "1", "oc-nonce": "other"})
    assert as_one(REF, [instance(1, READY), other]).labels == {"oc-managed": "1"}


def test_one_that_fails_keeps_none_from_being_asked() -> None:
    """A delete that one zone's API refuses is requested of the others all the same."""
    asked = []

    def ask(ref: VmRef) -> None:
        asked.append(ref)
        if ref == REF.nodes[0]:
            raise Unavailable("no answer")

    with pytest.raises(Unavailable):
        on_each(REF.nodes, ask)
    assert sorted(asked, key=lambda ref: ref.name) == list(REF.nodes)


@pytest.mark.parametrize(
    ("codes", "error"),
    [
        (("VM_MIN_COUNT_NOT_REACHED", "ZONE_RESOURCE_POOL_EXHAUSTED"), NoCapacity),
        (("VM_MIN_COUNT_NOT_REACHED", "QUOTA_EXCEEDED"), QuotaExceeded),
        (("VM_MIN_COUNT_NOT_REACHED", "UNSUPPORTED_OPERATION", "ZONE_RESOURCE_POOL_EXHAUSTED"), NoCapacity),
        (("VM_MIN_COUNT_NOT_REACHED",), NoCapacity),
    ],
)
def test_the_summary_of_a_bulk_insert_does_not_hide_its_cause(
    codes: tuple[str, ...], error: type[OrchestratorError]
) -> None:
    """It comes first, and says only that too few were made."""
    told: list[Any] = [{"code": code, "message": f"about {code}"} for code in codes]
    operation = compute_v1.Operation(status="DONE", error={"errors": told}, http_error_status_code=409)
    problem = problem_of_failed(operation)
    assert problem is not None
    translated = translate(problem, Request("create", "us-central1-a", "t4-n2"))
    assert type(translated) is error
    assert f"about {codes[-1]}" in translated.sentence


@pytest.mark.parametrize(
    ("code", "message", "error"),
    [
        (
            "CONDITION_NOT_MET",
            "Constraint constraints/compute.vmExternalIpAccess violated for project 1.",
            PolicyDenied,
        ),
        ("INVALID_USAGE", "The resource 'projects/p/global/networks/default' was not found", UsageError),
        ("RESOURCE_NOT_FOUND", "The resource 'projects/p/serviceAccounts/x' was not found", CloudError),
    ],
)
@pytest.mark.parametrize("summary_first", [True, False])
def test_what_no_zone_would_do_is_no_stock_out_because_too_few_were_made(
    code: str, message: str, error: type[OrchestratorError], summary_first: bool
) -> None:
    """The same error as for one instance: no other zone is tried, and none is avoided for a day."""
    told: list[Any] = [
        {"code": "VM_MIN_COUNT_NOT_REACHED", "message": "Requested minimum count of 2 VMs could not be created."},
        {"code": code, "message": message},
    ]
    ordered = told if summary_first else told[::-1]
    operation = compute_v1.Operation(status="DONE", error={"errors": ordered}, http_error_status_code=412)
    problem = problem_of_failed(operation)
    assert problem is not None
    translated = translate(problem, Request("create", "us-central1-a"))
    assert (type(translated), translated.code == "NoCapacity") == (error, False)
    assert message.split("'")[0] in translated.sentence
