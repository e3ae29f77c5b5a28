"""Every failure of Google Cloud becomes the error that says what to do next: one table of responses."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
import requests
from google.api_core import exceptions as api
from google.auth import exceptions as auth
from google.cloud import compute_v1
from google.protobuf import any_pb2
from google.rpc import error_details_pb2
from google.rpc.status_pb2 import Status

from infra.gcp.compute import problem_of_failed
from infra.gcp.errors import Doing, problem_of_operation, translate, translated
from orchestrator.errors import (
    AlreadyExists,
    ApiDisabled,
    BillingDisabled,
    CloudError,
    NoCapacity,
    NotFound,
    OrchestratorError,
    PermissionDenied,
    QuotaExceeded,
    Unauthenticated,
    Unavailable,
    UsageError,
)

QUOTA_TEXT = "Quota 'TPUV5sLitepodServingPerProjectPerZoneForTPUAPI' exhausted. Limit 4 in zone us-central1-a"
STOCK_OUT_TEXT = 'There is no more capacity in the zone "us-central1-a"; you can try in another zone [EID: 0x1]'


def _info(reason: str, **metadata: str) -> dict[str, Any]:
    kind = "type.googleapis.com/google.rpc.ErrorInfo"
    return {"@type": kind, "reason": reason, "domain": "googleapis.com", "metadata": metadata}


QUOTA_FAILURE = {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": [{"description": QUOTA_TEXT}]}


def _call(
    code: int, status: str = "", *, message: str = "m", details: tuple[Any, ...] = (), reason: str = ""
) -> api.GoogleAPICallError:
    """What the client raises for this JSON answer."""
    error: dict[str, Any] = {"code": code, "message": message, "status": status, "details": list(details)}
    if reason:
        error["errors"] = [{"domain": "global", "reason": reason, "message": message}]
    return _answer(code, json.dumps({"error": error}))


def _answer(code: int, text: str) -> api.GoogleAPICallError:
    response = requests.Response()
    response.status_code = code
    response._content = text.encode()
    response.request = requests.Request("GET", "https://tpu.googleapis.com/v2/x").prepare()
    error: api.GoogleAPICallError = api.from_http_response(response)  # type: ignore[no-untyped-call]
    return error


def _translated(error: Exception) -> OrchestratorError:
    with pytest.raises(OrchestratorError) as caught, translated("do it", zone="us-central1-a", accelerator="v3-8"):
        raise error
    assert caught.value.__cause__ is error
    return caught.value


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (_call(400, "INVALID_ARGUMENT"), UsageError),
        (_call(400, "FAILED_PRECONDITION"), CloudError),
        (_call(401, "UNAUTHENTICATED"), Unauthenticated),
        (_call(403, "PERMISSION_DENIED"), PermissionDenied),
        (_call(403, "PERMISSION_DENIED", details=(_info("IAM_PERMISSION_DENIED"),)), PermissionDenied),
        (_call(403, "PERMISSION_DENIED", details=(_info("LOCATION_POLICY_VIOLATED"),)), PermissionDenied),
        (_call(403, "PERMISSION_DENIED", details=(_info("SERVICE_DISABLED", service="tpu"),)), ApiDisabled),
        (_call(403, reason="accessNotConfigured"), ApiDisabled),
        (_call(403, "PERMISSION_DENIED", details=(_info("BILLING_DISABLED"),)), BillingDisabled),
        (_call(400, "FAILED_PRECONDITION", details=(_info("BILLING_DISABLED"),)), BillingDisabled),
        (_call(403, reason="quotaExceeded"), QuotaExceeded),
        (_call(403, reason="rateLimitExceeded"), Unavailable),
        (_call(404, "NOT_FOUND"), NotFound),
        (_call(404, reason="notFound"), NotFound),
        (_call(409, "ALREADY_EXISTS"), AlreadyExists),
        (_call(409, reason="alreadyExists"), AlreadyExists),
        (_call(409, "ABORTED"), Unavailable),
        (_call(412, reason="conditionNotMet"), CloudError),
        (_call(429, "RESOURCE_EXHAUSTED"), Unavailable),
        (_call(429, "RESOURCE_EXHAUSTED", details=(QUOTA_FAILURE,)), QuotaExceeded),
        (_call(429, "RESOURCE_EXHAUSTED", message=QUOTA_TEXT), QuotaExceeded),
        (_call(429, "RESOURCE_EXHAUSTED", message=QUOTA_TEXT, reason="rateLimitExceeded"), QuotaExceeded),
        (_call(429, "RESOURCE_EXHAUSTED", details=(QUOTA_FAILURE, _info("RATE_LIMIT_EXCEEDED"))), Unavailable),
        (_call(429, "RESOURCE_EXHAUSTED", message=STOCK_OUT_TEXT), NoCapacity),
        (_call(500, "INTERNAL"), Unavailable),
        (_call(503, "UNAVAILABLE"), Unavailable),
        (_call(504, "DEADLINE_EXCEEDED"), Unavailable),
        (requests.exceptions.ReadTimeout(), Unavailable),
        (requests.exceptions.ChunkedEncodingError(), Unavailable),
        (auth.TransportError(), Unavailable),  # type: ignore[no-untyped-call]
        (auth.RefreshError("revoked"), Unauthenticated),  # type: ignore[no-untyped-call]
        (api.RetryError("gave up", cause=None), Unavailable),  # type: ignore[no-untyped-call]
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else type(value).__name__,
)
def test_a_refused_call(error: Exception, kind: type[OrchestratorError]) -> None:
    """Exactly that error, not a subclass or a parent."""
    assert type(_translated(error)) is kind


@pytest.mark.parametrize("code", [403, 404])
@pytest.mark.parametrize("text", ["<html>captive portal</html>", "", "{}", "[]"])
def test_what_google_did_not_say_is_never_absence(code: int, text: str) -> None:
    """A proxy's 404 must not prove that a VM is gone."""
    assert type(_translated(_answer(code, text))) is Unavailable


@pytest.mark.parametrize("code", [403, 404, 502])
@pytest.mark.parametrize(
    "text", ['{"error": "text"}', '{"error": ["text"]}', '"text"', "5", '{"error": {"details": 5}}']
)
def test_json_that_is_not_google_s_is_never_absence(code: int, text: str) -> None:
    """api_core itself stumbles over it while it makes an error of the answer."""
    with pytest.raises(Unavailable), translated("do it"):
        raise _answer(code, text)


def test_a_quota_names_itself_and_its_limit() -> None:
    """In the ErrorInfo beside the QuotaFailure, or in the text where there is nothing else."""
    details = (QUOTA_FAILURE, _info("RESOURCE_QUOTA_EXCEEDED", quota_limit="TPUV3", quota_limit_value="8"))
    assert "quota TPUV3 (limit 8)" in str(_translated(_call(429, "RESOURCE_EXHAUSTED", details=details)))
    assert "(limit 4)" in str(_translated(_call(429, "RESOURCE_EXHAUSTED", message=QUOTA_TEXT)))


def test_a_disabled_api_names_the_command_that_enables_it() -> None:
    """By the service in the ErrorInfo; without one the console is named."""
    told = _translated(_call(403, details=(_info("SERVICE_DISABLED", service="tpu.googleapis.com"),)))
    assert "`gcloud services enable tpu.googleapis.com`" in told.hint
    assert "console" in _translated(_call(403, reason="accessNotConfigured")).hint


def _status(code: int, message: str, *details: Any) -> Status:
    status = Status(code=code, message=message)
    for detail in details:
        packed = any_pb2.Any()
        packed.Pack(detail)
        status.details.append(packed)
    return status


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (_status(8, STOCK_OUT_TEXT), NoCapacity),
        (_status(8, "some new wording"), NoCapacity),
        (_status(8, QUOTA_TEXT), QuotaExceeded),
        (_status(8, "new wording", error_details_pb2.QuotaFailure()), QuotaExceeded),
        (_status(3, "update is not supported while in state PREEMPTED"), NoCapacity),
        (_status(3, "bad"), UsageError),
        (_status(7, "no", error_details_pb2.ErrorInfo(reason="LOCATION_POLICY_VIOLATED")), PermissionDenied),
        (_status(10, "deleted while it was being created"), Unavailable),
        (_status(13, "internal"), Unavailable),
        (_status(999, "a code of the future"), Unavailable),
    ],
)
def test_a_tpu_operation_that_ended_badly(status: Status, kind: type[OrchestratorError]) -> None:
    """Stock-out and quota share code 8: the detail decides, then the documented text."""
    assert type(translate(problem_of_operation(status), Doing("create", "us-central1-a", "v3-8"))) is kind


def _operation(code: str, http: int, *details: Any) -> compute_v1.Operation:
    error = compute_v1.Errors(code=code, message="m", error_details=list(details))
    return compute_v1.Operation(
        status=compute_v1.Operation.Status.DONE, http_error_status_code=http, error=compute_v1.Error(errors=[error])
    )


QUOTA_INFO = compute_v1.QuotaExceededInfo(metric_name="compute.googleapis.com/gpus", limit_name="GPUS", limit=0.0)


@pytest.mark.parametrize(
    ("operation", "kind"),
    [
        (_operation("ZONE_RESOURCE_POOL_EXHAUSTED", 503), NoCapacity),
        (_operation("ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", 503), NoCapacity),
        (_operation("GPU_STOCKOUT", 503), NoCapacity),
        (_operation("QUOTA_EXCEEDED", 403, compute_v1.ErrorDetails(quota_info=QUOTA_INFO)), QuotaExceeded),
        (_operation("RESOURCE_NOT_READY", 400), Unavailable),
        (_operation("INVALID_FIELD_VALUE", 400), UsageError),
        (_operation("INTERNAL_ERROR", 500), Unavailable),
    ],
)
def test_an_instance_operation_that_ended_badly(operation: compute_v1.Operation, kind: type[OrchestratorError]) -> None:
    """By its code, never by the uninformative 503 around it."""
    problem = problem_of_failed(operation)
    assert problem is not None
    error = translate(problem, Doing("create", "us-central1-a", "t4"))
    assert type(error) is kind
    if isinstance(error, QuotaExceeded):
        assert "quota GPUS (limit 0)" in str(error)


def test_an_operation_that_runs_or_succeeded_has_no_problem() -> None:
    """An error before the end is not final."""
    done = compute_v1.Operation(status=compute_v1.Operation.Status.DONE)
    running = compute_v1.Operation(status=compute_v1.Operation.Status.RUNNING)
    assert problem_of_failed(done) is None
    assert problem_of_failed(running) is None


def test_our_own_mistakes_are_not_swallowed() -> None:
    """A TypeError of ours stays a TypeError."""
    with pytest.raises(TypeError), translated("do it"):
        raise TypeError
    with pytest.raises(AttributeError), translated("do it"):
        _ = cast(Any, "text").get("error")
