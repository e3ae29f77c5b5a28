"""Cloud Scheduler with Google's own client: jobs really fire, on a clock that is advanced."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud import scheduler_v1
from google.protobuf import duration_pb2, field_mask_pb2

from localcloud.scheduler.jobs import Cron
from localcloud.tests.conftest import PARENT, PROJECT, RunningCloud, create_node, node_body
from tests.waiting import eventually

REGION = f"projects/{PROJECT}/locations/us-central1"
ACCOUNT = "killer@local-project.iam.gserviceaccount.com"


def scheduler(cloud: RunningCloud) -> Any:
    return cloud.client(scheduler_v1.CloudSchedulerClient, transport="rest")


def now(cloud: RunningCloud) -> datetime:
    return datetime.fromisoformat(cloud.control("status")["clock"]).astimezone(UTC)


def job(name: str, schedule: str, node: str = "nobody", **fields: Any) -> scheduler_v1.Job:
    """Sends DELETE for a node."""
    return scheduler_v1.Job(
        name=f"{REGION}/jobs/{name}",
        schedule=schedule,
        time_zone="UTC",
        http_target=scheduler_v1.HttpTarget(
            uri=f"https://tpu.googleapis.com/v2/{PARENT}/nodes/{node}",
            http_method=scheduler_v1.HttpMethod.DELETE,
            oauth_token=scheduler_v1.OAuthToken(service_account_email=ACCOUNT),
        ),
        **fields,
    )


def attempted(cloud: RunningCloud, name: str, after: datetime | None = None) -> scheduler_v1.Job:
    """The job once an attempt of it (later than `after`) has ended."""

    def look() -> scheduler_v1.Job | None:
        found = scheduler(cloud).get_job(name=f"{REGION}/jobs/{name}")
        ended = "last_attempt_time" in found and (after is None or found.last_attempt_time > after)
        return found if ended else None

    return eventually(look, what=f"an attempt of {name}")  # type: ignore[return-value]


def at(moment: datetime) -> str:
    """The schedule of that minute."""
    return f"{moment.minute} {moment.hour} {moment.day} {moment.month} *"


def test_a_node_is_deleted_at_the_scheduled_minute_and_billed_until_then(clocked: RunningCloud) -> None:
    """However far the clock is advanced at once: the firing takes effect at its own time."""
    create_node(clocked, "doomed", node_body())
    due = (now(clocked) + timedelta(hours=2)).replace(second=0, microsecond=0)
    scheduler(clocked).create_job(parent=REGION, job=job("doom", at(due), "doomed"))
    clocked.control("clock/advance", {"seconds": (due - now(clocked)).total_seconds() - 30})
    assert [item["state"] for item in clocked.control("inventory")["items"] if item["kind"] == "node"] == ["READY"]
    clocked.control("clock/advance", {"seconds": 50000})
    assert [item for item in clocked.control("inventory")["items"] if item["kind"] == "node"] == []
    [row] = [row for row in clocked.control("meter")["rows"] if row["name"] == "doomed"]
    assert timedelta(0) <= datetime.fromisoformat(row["to"]) - due < timedelta(seconds=5)
    found = attempted(clocked, "doom")
    assert (found.status.code, found.state) == (0, scheduler_v1.Job.State.ENABLED)
    assert found.schedule_time.year == due.year + 1
    scheduler(clocked).delete_job(name=found.name)


def test_run_fires_now_and_its_status_says_what_was_answered(clocked: RunningCloud) -> None:
    """404 proves token and right; an account without the right is told 403."""
    client = scheduler(clocked)
    made = client.create_job(parent=REGION, job=job("probe", "0 0 1 1 *"))
    assert "last_attempt_time" not in made
    client.run_job(name=made.name)
    first = attempted(clocked, "probe")
    assert first.status.code == 5
    clocked.control("permissions", {"permission": "tpu.nodes.delete", "who": ACCOUNT, "denied": True})
    client.run_job(name=made.name)
    assert attempted(clocked, "probe", first.last_attempt_time).status.code == 7
    clocked.control("permissions", {"permission": "tpu.nodes.delete", "who": ACCOUNT, "denied": False})
    client.delete_job(name=made.name)


def test_a_failed_attempt_is_repeated_with_growing_pauses(clocked: RunningCloud) -> None:
    """retry_count 2 with 10 s: attempts at 0, 10 and 30 s, then the schedule again."""
    clocked.control("faults", {"method": "tpu.nodes.delete", "when": "before", "http": 503, "times": 3})
    retry = scheduler_v1.RetryConfig(retry_count=2, min_backoff_duration=duration_pb2.Duration(seconds=10))
    due = (now(clocked) + timedelta(minutes=2)).replace(second=0, microsecond=0)
    scheduler(clocked).create_job(parent=REGION, job=job("again", at(due), retry_config=retry))
    seen = []
    for seconds in (0, 10, 30):
        clocked.control("clock/advance", {"seconds": (due - now(clocked)).total_seconds() + seconds + 2})
        found = attempted(clocked, "again")
        seen.append((found.last_attempt_time - due).total_seconds())
        assert found.status.code == 14
    assert [round(after / 10) * 10 for after in seen] == [0, 10, 30]
    assert found.schedule_time.year == due.year + 1
    scheduler(clocked).delete_job(name=found.name)


def test_pause_resume_patch_and_list(clocked: RunningCloud) -> None:
    client = scheduler(clocked)
    made = client.create_job(parent=REGION, job=job("changed", "* * * * *", description="ours"))
    paused = client.pause_job(name=made.name)
    assert (paused.state, "schedule_time" in paused) == (scheduler_v1.Job.State.PAUSED, False)
    before = attempted(clocked, "changed").last_attempt_time if "last_attempt_time" in paused else None
    clocked.control("clock/advance", {"seconds": 600})
    assert client.get_job(name=made.name).last_attempt_time == before
    assert client.resume_job(name=made.name).state == scheduler_v1.Job.State.ENABLED
    wanted = scheduler_v1.Job(name=made.name, schedule="5 4 3 2 *")
    patched = client.update_job(job=wanted, update_mask=field_mask_pb2.FieldMask(paths=["schedule"]))
    assert (patched.schedule, patched.description) == ("5 4 3 2 *", "ours")
    assert (patched.schedule_time.month, patched.schedule_time.day, patched.schedule_time.hour) == (2, 3, 4)
    assert [found.name for found in client.list_jobs(parent=REGION)] == [made.name]
    client.delete_job(name=made.name)
    with pytest.raises(exceptions.NotFound):
        client.get_job(name=made.name)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"schedule": "61 * * * *"}, "minute"),
        ({"schedule": "every day"}, "fields"),
        ({"time_zone": "Europe/Berlin"}, "time zone"),
        ({"retry_config": {"retry_count": 6}}, "retry_count"),
        ({"name": f"{REGION}/jobs/no.dots"}, "JOB_ID"),
    ],
)
def test_a_wrong_job_is_an_invalid_argument(clocked: RunningCloud, change: dict[str, Any], text: str) -> None:
    wrong = scheduler_v1.Job({**scheduler_v1.Job.to_dict(job("wrong", "* * * * *")), **change})
    with pytest.raises(exceptions.BadRequest, match=text):
        scheduler(clocked).create_job(parent=REGION, job=wrong)


def test_regions_without_cloud_scheduler_are_refused_as_google_does(clocked: RunningCloud) -> None:
    """As at an account without the right, and not as something absent; `gcloud scheduler locations list` lacks them."""
    place = f"projects/{PROJECT}/locations/us-east5"
    client = scheduler(clocked)
    wanted = job("nowhere", "* * * * *")
    wanted.name = f"{place}/jobs/nowhere"
    said = r'lacks IAM permission "cloudscheduler.jobs.{}" for the resource "{}" \(or the resource may not exist\)'
    with pytest.raises(exceptions.Forbidden, match=said.format("create", place)):
        client.create_job(parent=place, job=wanted)
    with pytest.raises(exceptions.Forbidden, match=said.format("delete", wanted.name)):
        client.delete_job(name=wanted.name)
    with pytest.raises(exceptions.BadRequest, match="Location 'us-east5' is not a valid location"):
        client.list_jobs(parent=place)
    answer = clocked.http.get(  # the TPU API has the same path: the host says whose it is
        f"/v1/projects/{PROJECT}/locations", headers={"Host": "cloudscheduler.googleapis.com"}
    )
    there = {found["locationId"] for found in answer.json()["locations"]}
    assert "us-central1" in there
    assert not {"us-east5", "us-central2", "europe-north1", "southamerica-west1"} & there


def test_jobs_survive_a_restart_are_billed_and_make_up_for_what_was_missed(own_cloud: RunningCloud) -> None:
    client = scheduler(own_cloud)
    made = client.create_job(parent=REGION, job=job("lasting", "* * * * *"))
    with pytest.raises(exceptions.Conflict):
        client.create_job(parent=REGION, job=job("lasting", "* * * * *"))
    assert own_cloud.control("status")["counts"] == {"job": 1}
    own_cloud.kill()
    own_cloud.start()
    own_cloud.control("clock/advance", {"seconds": 61})
    assert attempted(own_cloud, "lasting").status.code == 5
    scheduler(own_cloud).pause_job(name=made.name)
    own_cloud.control("clock/advance", {"seconds": 73 * 3600})
    scheduler(own_cloud).delete_job(name=made.name)
    own_cloud.control("clock/advance", {"seconds": 73 * 3600})
    [row] = own_cloud.control("meter")["rows"]
    # 73 hours touch four calendar days or, from late in the evening on, five; the test's month is 31 days for $0.10.
    days = (date.fromisoformat(row["to"][:10]) - date.fromisoformat(row["from"][:10])).days + 1
    assert days in (4, 5)
    assert (row["kind"], row["usd"]) == ("job", f"{Decimal('0.10') * days / 31:.6f}")


@pytest.mark.parametrize(
    ("schedule", "after", "expected"),
    [
        ("35-59 14-23 21-30 11 *", "2026-11-21T14:34:59", "2026-11-21T14:35:00"),
        ("35-59 14-23 21-30 11 *", "2026-11-21T14:59:00", "2026-11-21T15:35:00"),
        ("35-59 14-23 21-30 11 *", "2026-11-30T23:59:00", "2027-11-21T14:35:00"),
        ("*/15 * * * *", "2026-11-21T23:45:30", "2026-11-22T00:00:00"),
        ("0 0 29 2 *", "2026-11-21T00:00:00", "2028-02-29T00:00:00"),
        ("0 12 13 * 5", "2026-11-21T00:00:00", "2026-11-27T12:00:00"),  # either the 13th or a Friday
        ("0 12 * * 7", "2026-11-21T00:00:00", "2026-11-22T12:00:00"),  # 7 is Sunday too
        ("0 0 31 2 *", "2026-11-21T00:00:00", None),
    ],
)
def test_the_next_time_of_a_schedule(schedule: str, after: str, expected: str | None) -> None:
    found = Cron.parse(schedule).next_after(datetime.fromisoformat(after).replace(tzinfo=UTC))
    assert found == (datetime.fromisoformat(expected).replace(tzinfo=UTC) if expected else None)
