"""The judge of the traffic: what it lets pass, and that each kind of deviation is caught."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from localcloud.tests.google_api.documents import APIS, methods
from localcloud.tests.google_api.judge import Judge, judge_exchange

ZONE = "projects/local-project/locations/us-central1-a"
NODE = {"runtimeVersion": "tpu-ubuntu2204-base", "acceleratorType": "v3-8", "labels": {"a": "b"}}
QUEUED = {
    "tpu": {"nodeSpec": [{"parent": ZONE, "nodeId": "n", "node": {**NODE, "autocheckpointEnabled": True}}]},
    "runDuration": {"maxRunDuration": "3600s"},
    "provisioningModel": "FLEX_START",
}
ERROR = {
    "code": 429,
    "message": "Quota 'TPUV2sPerProjectPerZoneForTPUAPI' exhausted. Limit 0 in zone us-central1-a",
    "status": "RESOURCE_EXHAUSTED",
    "details": [
        {
            "@type": "type.googleapis.com/google.rpc.QuotaFailure",
            "violations": [{"subject": "zone:us-central1-a", "description": "exhausted"}],
        }
    ],
}
OPERATION = {"@type": "type.googleapis.com/google.cloud.tpu.v2.OperationMetadata", "createTime": "2026-11-22T10:00:00Z"}
DISK = {"boot": True, "initializeParams": {"diskSizeGb": "100"}}


def exchange(call: str, *, sent: Any = None, status: int = 200, reply: Any = None, host: str = "") -> dict[str, Any]:
    """A recorded exchange: `call` is a verb, a path and a query."""
    verb, target = call.split(" ")
    path, _, query = target.partition("?")
    bodies = [body if isinstance(body, str) else "" if body is None else json.dumps(body) for body in (sent, reply)]
    return {
        "host": host or "127.0.0.1", "verb": verb, "path": path, "query": query, "agent": "python-requests",
        "request": bodies[0], "status": status, "reply": bodies[1],
    }  # fmt: skip


def create_node(query: str = "?nodeId=n", **more: Any) -> dict[str, Any]:
    return exchange(f"POST /v2/{ZONE}/nodes{query}", sent={**NODE, **more}, reply={"done": False})


def node(**fields: Any) -> dict[str, Any]:
    return exchange(f"GET /v2/{ZONE}/nodes/n", reply={**NODE, "name": f"{ZONE}/nodes/n", **fields})


def queued(**more: Any) -> dict[str, Any]:
    return exchange(f"POST /v2alpha1/{ZONE}/queuedResources?queuedResourceId=q", sent={**QUEUED, **more}, reply={})


def instance(path: str = "zones/us-central1-a", query: str = "", **disk: Any) -> dict[str, Any]:
    call = f"POST /compute/v1/projects/local-project/{path}/instances{query}"
    return exchange(call, sent={"name": "vm", "disks": [{**DISK, **disk}]}, reply={})


def refusal(**changes: Any) -> dict[str, Any]:
    return exchange(f"POST /v2/{ZONE}/nodes?nodeId=n", sent=NODE, status=429, reply={"error": {**ERROR, **changes}})


GOOD = {
    "a request": create_node(),
    "v2alpha1": queued(),
    "a reply": node(state="READY", createTime="2026-11-22T10:00:00.123456Z", id="12"),
    "int64 as text": instance(),
    "gcloud's form of a boolean": exchange(
        "GET /storage/v1/b/bucket/o?versions=True", reply={"kind": "storage#objects"}, host="storage.googleapis.com"
    ),
    "an error": refusal(),
    "an operation": exchange(f"GET /v2/{ZONE}/operations/o", reply={"done": False, "metadata": OPERATION}),
    "a fetched node sent back with a mask": exchange(
        f"PATCH /v2/{ZONE}/nodes/n?updateMask=labels", sent={**NODE, "state": "READY"}, reply={"done": True}
    ),
    "a bad request that was refused": exchange(
        f"POST /v2/{ZONE}/nodes", sent={"colour": "red"}, status=400, reply={"error": {"code": 400, "message": "no"}}
    ),
    "an upload": exchange("POST /upload/storage/v1/b/bucket/o?uploadType=multipart", sent={"name": "o"}),
    "a download": exchange("GET /download/storage/v1/b/bucket/o/a%2Fb?alt=media"),
    "quotas": exchange("GET /v1/projects/p/locations/global/services/tpu/quotaInfos?pageSize=9", reply={}),
}  # fmt: skip


@pytest.mark.parametrize("good", GOOD)
def test_what_google_describes_passes(good: str) -> None:
    assert [str(finding) for finding in judge_exchange(GOOD[good])] == []


PLANTED = {
    "an unknown field sent": (create_node(colour="red"), "request.colour is unknown"),
    "a field of another version sent": (create_node(autocheckpointEnabled=True), "request.autocheckpointEnabled"),
    "an unknown field below": (queued(tpu={"nodeSpec": [{"name": "n"}]}), "nodeSpec[].name is unknown"),
    "an unknown field replied": (node(colour="red"), "reply.colour is unknown"),
    "a wrong type sent": (create_node(tags="web"), "request.tags is 'web': not of type array"),
    "a wrong type in a map": (create_node(labels={"a": 1}), "request.labels.* is 1: not of type string"),
    "a boolean as a number": (create_node(networkConfig={"canIpForward": 1}), "canIpForward is 1: not of"),
    "int64 as a number": (instance(initializeParams={"diskSizeGb": 100}), "is 100: not of type string (int64)"),
    "an int32 out of range": (instance(index=2**31), "index is 2147483648: not of format int32"),
    "a bad enum sent": (create_node(acceleratorConfig={"type": "V9"}), "type is 'V9': not in the enum"),
    "a bad enum replied": (node(state="ASLEEP"), "reply.state is 'ASLEEP': not in the enum"),
    "a number for an enum replied": (node(state=2), "reply.state is 2: not of type string"),
    "a bad timestamp": (node(createTime="2026-11-22 10:00:00"), "reply.createTime is"),
    "a timestamp that does not exist": (node(createTime="2026-13-22T10:00:00Z"), "not of format google-datetime"),
    "a bad duration": (queued(runDuration={"maxRunDuration": "1h"}), "is '1h': not of format google-duration"),
    "a read-only field sent": (create_node(state="READY"), "request.state is read-only, and was sent"),
    "null replied": (node(labels=None), "reply.labels is null"),
    "a required field not sent": (exchange(f"POST /v2/{ZONE}/nodes", sent={}), "request.runtimeVersion is required"),
    "a body not sent": (exchange(f"POST /v2/{ZONE}/nodes"), "request.runtimeVersion is required, and was not sent"),
    "an empty reply": (exchange(f"GET /v2/{ZONE}/nodes/n"), "reply is not JSON"),
    "a required parameter not sent": (exchange("GET /storage/v1/b"), "query.project is required, and was not sent"),
    "an unknown parameter": (create_node(query="?nodeId=n&requestId=1"), "query.requestId is unknown"),
    "a parameter of a wrong type": (exchange(f"GET /v2/{ZONE}/nodes?pageSize=all"), "query.pageSize is 'all'"),
    "a parameter given twice": (create_node(query="?nodeId=n&nodeId=m"), "query.nodeId is given more than once"),
    "a bad name in the path": (instance(path="zones/US"), "path.zone is 'US': does not match"),
    "a wrong path": (exchange("GET /v2/projects/p/zones/z/nodes"), "path is not of a method"),
    "a wrong verb": (exchange(f"PUT /v2/{ZONE}/nodes/n"), "path is not of a method"),
    "another API's path": (exchange("GET /v1/projects/p", host="tpu.googleapis.com"), "path is not of a method"),
    "a request that is not JSON": (exchange(f"POST /v2/{ZONE}/nodes?nodeId=n", sent="{"), "request is not JSON"),
    "a body that nobody expects": (exchange(f"DELETE /v2/{ZONE}/nodes/n", sent={"force": True}), "request has a body"),
    "an operation without its type": (
        exchange(f"GET /v2/{ZONE}/operations/o", reply={"metadata": {"verb": "create"}}), "reply.metadata lacks @type"
    ),
    "an unknown field in an operation": (
        exchange(f"GET /v2/{ZONE}/operations/o", reply={"metadata": {**OPERATION, "no": 1}}), "metadata.no is unknown"
    ),
    "an error in plain text": (
        exchange(f"GET /v2/{ZONE}/nodes/n", status=405, reply="Method Not Allowed"), "error is not in Google's form"
    ),
    "an error with another code": (refusal(code=500), "error.code is 500: not the HTTP status"),
    "an error with an unknown status": (refusal(status="OUT_OF_STOCK"), "error.status is 'OUT_OF_STOCK': not a google"),
    "an error with a bad detail": (
        refusal(details=[{"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violation": []}]), "error.details"
    ),
    "an error with an unknown field": (refusal(hint="wait"), "error.hint is unknown"),
}  # fmt: skip


@pytest.mark.parametrize("planted", PLANTED)
def test_a_deviation_is_caught(planted: str) -> None:
    bad, text = PLANTED[planted]
    assert [str(finding) for finding in judge_exchange(bad) if text in str(finding)], judge_exchange(bad)


def test_a_recording_is_judged_once_and_only_as_far_as_it_is_written(tmp_path: Path) -> None:
    recording, line = tmp_path / "traffic.jsonl", json.dumps(PLANTED["an unknown field sent"][0])
    recording.write_text(f"{line}\n{line}\n{line[:20]}")
    judge = Judge(recording)
    assert [finding.method for finding in judge.new_findings()] == ["tpu.projects.locations.nodes.create"]
    assert judge.new_findings() == []
    recording.write_text(f"{line}\n{line}\n{json.dumps(PLANTED['a wrong verb'][0])}\n")
    assert [finding.method for finding in judge.new_findings()] == ["(no method)"]
    with recording.open("a") as file:  # killed while it wrote; the next record begins with a line's end
        file.write(f"{line[:20]}\n{json.dumps(PLANTED['a bad enum sent'][0])}\n")
    assert "request.acceleratorConfig.type" in [finding.deviation.at for finding in judge.new_findings()]


@pytest.mark.parametrize("api", APIS)
def test_every_document_is_read(api: str) -> None:
    assert all(method.pattern.fullmatch(method.path.replace("{+", "{")) for method in methods(api))
