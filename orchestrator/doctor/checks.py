"""What does an answer about the account mean for a launch? One pure function a check: facts in, findings out."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Any

from orchestrator.config import LIST_PRICE_DAYS
from orchestrator.doctor.diagnosis import Check, Finding, Known, Verdict
from orchestrator.doctor.switches import scheduler, worker
from orchestrator.domain.accelerators import Accelerator
from orchestrator.domain.account import (
    Api,
    Billing,
    BucketFacts,
    BudgetAlert,
    GpuAllowance,
    Idle,
    Permission,
    ProjectFacts,
    Quota,
    SchedulerAccount,
)
from orchestrator.domain.prices import region_of
from orchestrator.errors import NotFound, PermissionDenied, Unauthenticated
from orchestrator.ports import Account

PASS, WARN, FAIL = Verdict.PASS, Verdict.WARN, Verdict.FAIL
SKEW_REFUSED_S = 300
"""Google refuses sign-ins from clocks that are further off than about five minutes."""
BUDGET_PART = Decimal("0.8")
"""A budget alert comes hours late: it is set below what there is."""


def credentials(identity: str, _known: Known) -> list[Finding]:
    """A token was got."""
    return [Finding("credentials", PASS, identity)]


def project(found: ProjectFacts, known: Known) -> list[Finding]:
    """It is there and not about to be deleted."""
    if found.active:
        return [Finding("project", PASS, f"{found.name} is active")]
    step = f"`gcloud projects undelete {known.project}`, or use another project"
    return [Finding("project", FAIL, f"{found.name} is being deleted", step)]


def billing(found: Billing, known: Known) -> list[Finding]:
    """Open, closed, or none."""
    short = found.account.removeprefix("billingAccounts/")
    if found.is_open:
        return [Finding("billing", PASS, f"billing account {short} is open")]
    if found.account:
        fact = f"billing account {short} is closed: nothing can be created (so ends a trial that was not upgraded)"
        return [Finding("billing", FAIL, fact, "console: Billing > Account management > upgrade or reopen")]
    step = f"`gcloud billing projects link {known.project} --billing-account=ACCOUNT`"
    return [Finding("billing", FAIL, "no billing account is linked", step)]


def account_kind(found: GpuAllowance, known: Known) -> list[Finding]:
    """Is it a free trial? No API says so: it is inferred from GPUs, which a trial can neither have nor ask for."""
    check = "account kind"
    if found.limit > 0:
        fact = f"no free trial: it may have GPUs ({found.quota} = {found.limit:g}); the credit is no cap, ours is"
        return [Finding(check, PASS, fact)]
    wants_gpus = any(item.api == "gpu" for item in known.accelerators)
    if found.raisable:
        return [Finding(check, PASS, f"no sign of a free trial: {found.quota} is 0, and more can be asked for")]
    step = (
        "console: Billing > upgrade, then ask for GPU quota (the rest of the credit stays, but it is no cap any more: "
        "what goes over is billed to the card)"
    )
    if found.raisable is None:
        fact = f"perhaps a free trial, or a new project: {found.quota} is 0; whether it can be raised nobody could say"
        return [Finding(check, WARN, fact, step)]
    fact = (
        f"very likely a free trial (no API says it): {found.quota} is 0 and cannot be raised ({found.reason}), so no "
        "GPU can be rented"
    )
    return [Finding(check, FAIL if wants_gpus else WARN, fact, step)]


def apis(found: Sequence[Api], known: Known) -> list[Finding]:
    """Needed ones that are off are a FAIL, useful ones a WARN."""
    findings = []
    for needed, verdict in ((True, FAIL), (False, WARN)):
        off = [api for api in found if not api.enabled and api.needed == needed]
        if off:
            fact = "disabled: " + ", ".join(f"{api.name} ({api.purpose})" for api in off)
            names = " ".join(api.name for api in off)
            findings.append(
                Finding("APIs", verdict, fact, f"`gcloud services enable {names} --project {known.project}`")
            )
    return findings or [Finding("APIs", PASS, f"all {len(found)} are enabled")]


def permissions(found: Sequence[Permission], _known: Known) -> list[Finding]:
    """Each that is missing, by name and by what it is for."""
    findings = []
    for needed, verdict in ((True, FAIL), (False, WARN)):
        missing = [one for one in found if one.granted is False and one.needed == needed]
        if missing:
            purposes = dict.fromkeys(one.purpose for one in missing)
            named = "; ".join(
                f"{purpose}: {', '.join(one.name for one in missing if one.purpose == purpose)}" for purpose in purposes
            )
            findings.append(Finding("permissions", verdict, f"missing to {named}", _role_for(missing)))
    unclear = [one.name for one in found if one.granted is None]
    if unclear:
        step = "a launch will tell; the roles Owner and Storage Admin have them all"
        findings.append(Finding("permissions", WARN, f"Google does not say about {', '.join(unclear)}", step))
    return findings or [Finding("permissions", PASS, f"all {len(found)} that launch needs are granted")]


_ROLES = {
    "tpu": "roles/tpu.admin", "compute": "roles/compute.instanceAdmin.v1", "storage": "roles/storage.admin",
    "iam": "roles/iam.serviceAccountUser", "cloudscheduler": "roles/cloudscheduler.admin",
}  # fmt: skip


def _role_for(missing: Sequence[Permission]) -> str:
    roles = dict.fromkeys(_ROLES.get(one.name.partition(".")[0], "roles/owner") for one in missing)
    return f"have an owner of the project grant {' and '.join(roles)} (console: IAM)"


def quotas(found: Sequence[Quota], known: Known) -> list[Finding]:
    """What can be rented by quota, what cannot, and what nobody knows. Quota is no promise of capacity.

    A FAIL for an accelerator that was asked for, and when of TPUs or GPUs none at all is left.
    """
    items = {item.name: item for item in known.accelerators}
    fits: dict[str, list[str]] = {one.accelerator: fitting(one, items[one.accelerator], known) for one in found}
    unknown = [one for one in found if not one.limits]
    short = [one for one in found if one.limits and not fits[one.accelerator]]
    findings = []
    enough = [one.accelerator for one in found if fits[one.accelerator]]
    if enough:
        where = f" ({', '.join(fits[enough[0]][:3])})" if len(enough) == 1 else ""
        findings.append(Finding("quotas", PASS, f"enough for one VM of {', '.join(enough)}{where}"))
    for kind in ("tpu", "gpu"):
        lacking = [one for one in short if items[one.accelerator].api == kind]
        if not lacking:
            continue
        none_left = not any(items[name].api == kind for name in [*enough, *(one.accelerator for one in unknown)])
        fact = f"too little in every zone: {'; '.join(_shortage(lacking, items, known))}"
        names = " and ".join(dict.fromkeys(_asked_for(one) for one in lacking))
        step = f"ask for more of {names}: https://console.cloud.google.com/iam-admin/quotas?project={known.project}"
        findings.append(Finding("quotas", FAIL if known.named or none_left else WARN, fact, step))
    if unknown:
        named = ", ".join(f"{one.accelerator} ({one.name or 'of no known name'})" for one in unknown)
        fact = f"Google shows no quota for {named}"
        findings.append(Finding("quotas", WARN, fact, "a launch will tell"))
    return findings


def fitting(one: Quota, item: Accelerator, known: Known) -> list[str]:
    """The zones where one VM fits."""
    if one.everywhere is not None and one.everywhere < one.needed:
        return []
    return [zone for zone in known.zones_of(item) if _limit(one, zone) >= one.needed]


def _limit(one: Quota, zone: str) -> float:
    return one.limits.get(zone, one.limits.get(region_of(zone), 0.0))


def _asked_for(one: Quota) -> str:
    return "GPUS_ALL_REGIONS" if one.everywhere is not None and one.everywhere < one.needed else one.name


def _shortage(lacking: Sequence[Quota], items: dict[str, Accelerator], known: Known) -> list[str]:
    """`TPUV2... is 0: v2-8 needs 8`, one text a quota."""
    texts: dict[str, list[str]] = {}
    for one in lacking:
        best = max((_limit(one, zone) for zone in known.zones_of(items[one.accelerator])), default=0.0)
        limit = one.everywhere if _asked_for(one) != one.name and one.everywhere is not None else best
        texts.setdefault(f"{_asked_for(one)} is {limit:g}", []).append(f"{one.accelerator} needs {one.needed:g}")
    return [f"{quota} ({', '.join(needs)})" for quota, needs in texts.items()]


def credit(_: None, known: Known) -> list[Finding]:
    """Stated, and not over. No API tells it."""
    step = "`orchestrate budget set --credit 300 --expires DATE --spent X` (console: Billing > Credits)"
    if known.credit is None:
        return [Finding("credit", FAIL, "no credit is stated, and no API tells one", step)]
    text, last = f"${known.credit.amount_usd:.2f} stated", known.credit.expires
    if last is None:
        return [Finding("credit", PASS, f"{text}, without a last day")]
    if last < known.today:
        return [Finding("credit", FAIL, f"{text}, but it expired on {last}", step)]
    return [Finding("credit", PASS, f"{text}, until {last} ({(last - known.today).days} days)")]


def budgets(found: Sequence[BudgetAlert], known: Known) -> list[Finding]:
    """A second alarm in Google's hands. It must count what credits pay, or it sees $0 until they are used up."""
    check, limit = "budget alert", known.credit.amount_usd if known.credit else None
    wanted = f"{limit * BUDGET_PART:.0f}" if limit else "AMOUNT"
    create = (
        f"`gcloud billing budgets create --billing-account=ACCOUNT --display-name=orchestrate "
        f"--budget-amount={wanted}USD --threshold-rule=percent=0.5 --threshold-rule=percent=0.9 "
        f"--credit-types-treatment=exclude-all-credits --filter-projects=projects/{known.project}`"
    )
    if not found:
        return [Finding(check, WARN, "no budget watches this project", create)]
    gross = [one for one in found if not one.net_of_credits]
    if not gross:
        named = ", ".join(one.name for one in found)
        fact = f"{named}: credits are taken off, so it sees $0 until the credit is used up and never fires in time"
        return [Finding(check, WARN, fact, f"console: Billing > Budgets > {found[0].name} > Credits: untick all")]
    fitting = [one for one in gross if limit is None or (one.usd is not None and one.usd < limit)]
    if not fitting:
        told = ", ".join(f"{one.name} ({'no fixed amount' if one.usd is None else f'${one.usd:.2f}'})" for one in gross)
        fact = f"{told} is not below the credit of ${limit:.2f}, and alerts come hours late"
        return [Finding(check, WARN, fact, f"console: Billing > Budgets > {gross[0].name}: set ${wanted} or less")]
    best = fitting[0]
    amount = "" if best.usd is None else f" at ${best.usd:.2f}"
    return [Finding(check, PASS, f"{best.name}{amount}, before credits; it alerts hours late and stops nothing")]


def buckets(found: Sequence[BucketFacts], known: Known) -> list[Finding]:
    """Where the VMs are, private, and gone when deleted. A launch puts the settings of its bucket right."""
    findings = []
    for one in found:
        wrong = []
        if one.region not in known.regions:
            wrong.append(f"lies in {one.region}, where no VM is rented: reading it from elsewhere costs egress")
        if one.soft_delete_s:
            wrong.append(f"keeps and bills deleted data for {one.soft_delete_s / 86400:g} days (soft delete)")
        if not one.is_private:
            wrong.append("may be made public")
        if wrong:
            step = f"`gcloud storage buckets update gs://{one.name} --clear-soft-delete --public-access-prevention`"
            if one.region not in known.regions:
                step = f"`gcloud storage rm --recursive gs://{one.name}` when its results are no longer wanted"
            findings.append(Finding("buckets", WARN, f"{one.name} {' and '.join(wrong)}", step))
    fact = f"{len(found)} of ours, in the VMs' regions, private, no soft delete" if found else "none of ours yet"
    return findings or [Finding("buckets", PASS, fact)]


def silent_costs(found: Sequence[Idle], _known: Known) -> list[Finding]:
    """What bills although nothing uses it. Ours `teardown --all` ends; what is not ours is only named."""
    check, findings = "silent costs", []
    ours = [one for one in found if one.is_ours]
    if ours:
        step = "`orchestrate teardown --all` ends what is of ours, `orchestrate recover` what is of this machine"
        findings.append(Finding(check, WARN, f"of ours and in no use: {_named(ours)}", step))
    foreign = [one for one in found if not one.is_ours]
    if foreign:
        first = foreign[0]
        is_zone = region_of(first.place).count("-") == 1  # us-central1-a; disks may be of a region too
        where = "--global" if first.place == "global" else f"--{'zone' if is_zone else 'region'}={first.place}"
        step = f"if nobody needs it: `gcloud compute {_IN_GCLOUD[first.kind]} delete {first.name} {where}`"
        fact = f"not ours, in no use, and never deleted by this tool: {_named(foreign)}"
        findings.append(Finding(check, WARN, fact, step))
    nothing = "no unused address, no disk without a VM, no stopped instance, nothing left in a queue"
    return findings or [Finding(check, PASS, nothing)]


_IN_GCLOUD = {
    "address": "addresses", "disk": "disks", "instance": "instances", "queued resource": "tpus queued-resources",
}  # fmt: skip


def _named(found: Sequence[Idle]) -> str:
    held = "holds quota until it is deleted"
    return ", ".join(
        f"{one.kind} {one.name} in {one.place}" + (f" ({held})" if one.kind == "queued resource" else "")
        for one in found
    )


def clock(skew_s: float, _known: Known) -> list[Finding]:
    """Deadlines are the cloud's time; a wrong clock is corrected, a very wrong one is refused by Google."""
    if abs(skew_s) < 1:
        return [Finding("clock", PASS, "agrees with the cloud's")]
    fact = f"this machine's clock is {abs(skew_s):.0f} s {'behind' if skew_s > 0 else 'ahead of'} the cloud's"
    step = "set it by the network: `sudo timedatectl set-ntp true`"
    if abs(skew_s) > SKEW_REFUSED_S:
        return [Finding("clock", FAIL, f"{fact}: sign-ins are refused", step)]
    return [Finding("clock", WARN, f"{fact}: deadlines are corrected by that", step)]


def prices(_: None, known: Known) -> list[Finding]:
    """How old is the price list that caps are computed from?"""
    rates = [
        known.prices.rate(item, zone, item.usual_terms) for item in known.accelerators for zone in known.zones_of(item)
    ]
    dates = [rate.as_of for rate in rates if rate.as_of is not None]
    if not dates:
        step = "`orchestrate accelerators` lists what can be rented where"
        return [Finding("prices", FAIL, "nothing that was asked for has a price in any zone", step)]
    age = (known.today - min(dates)).days
    fact = f"from {min(dates)} to {max(dates)}: the oldest is {age} days old"
    if age > LIST_PRICE_DAYS:
        return [Finding("prices", WARN, fact, "compare them with https://cloud.google.com/products/calculator")]
    return [Finding("prices", PASS, fact)]


def _ask_scheduler(account: Account, known: Known) -> SchedulerAccount | None:
    return account.scheduler() if any(item.api == "tpu" for item in known.accelerators) else None


CHECKS: tuple[Check[Any], ...] = (
    Check("credentials", lambda account, _: account.identity(), credentials, (Unauthenticated,)),
    Check("project", lambda account, _: account.project(), project, (NotFound, PermissionDenied)),
    Check("billing", lambda account, _: account.billing(), billing),
    Check("account kind", lambda account, _: account.gpus(), account_kind),
    Check("APIs", lambda account, _: account.apis(), apis),
    Check("permissions", lambda account, _: account.permissions(), permissions),
    Check("quotas", lambda account, known: account.quotas(known.accelerators), quotas),
    Check("kill-switch rights", lambda account, _: account.worker(), worker),
    Check("scheduler rights", _ask_scheduler, scheduler),
    Check("credit", lambda *_: None, credit),
    Check("budget alert", lambda account, _: account.budgets(), budgets),
    Check("buckets", lambda account, _: account.buckets(), buckets),
    Check("silent costs", lambda account, _: account.idle(), silent_costs),
    Check("clock", lambda account, _: account.clock_skew_s(), clock),
    Check("prices", lambda *_: None, prices),
)
"""What is asked, in the order in which it is shown."""
