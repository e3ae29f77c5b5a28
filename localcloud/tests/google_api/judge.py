"""The judge: recorded requests and replies of the local cloud against Google's descriptions of its APIs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, unquote

from google.protobuf import any_pb2, json_format
from google.rpc import code_pb2, error_details_pb2  # noqa: F401  whose types error details are of

from localcloud.tests.google_api.allowed import ALLOWED
from localcloud.tests.google_api.documents import Json, Method, method_of
from localcloud.tests.google_api.schema import READ_ONLY, Checker, Deviation, scalar_problem

_BY_HAND = "python-httpx"
"""What tests send bad requests with, to see them refused."""
_ERROR_SCHEMA = {"code", "message", "status", "errors", "details"}


@dataclass(frozen=True)
class Finding:
    """A deviation, and the exchange that shows it."""

    method: str
    deviation: Deviation
    example: str

    def __str__(self) -> str:
        return f"{self.method}: {self.deviation.at} {self.deviation.what}\n    {self.example}"


class Judge:
    """Judges what local clouds record in a file, once: most of the traffic are polls that look the same."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._read = 0
        self._judged: set[bytes] = set()

    def new_findings(self) -> list[Finding]:
        """Those of the exchanges since the last call, one for each method, place and kind of deviation."""
        found: dict[tuple[str, str, str], Finding] = {}
        for line in self._new_lines():
            for finding in judge_exchange(json.loads(line)):
                found.setdefault((finding.method, finding.deviation.at, finding.deviation.what.split(":")[0]), finding)
        return list(found.values())

    def _new_lines(self) -> Iterator[bytes]:
        with self._file.open("rb") as recording:
            recording.seek(self._read)
            for line in recording:
                if not line.endswith(b"\n"):
                    return  # is being written
                self._read += len(line)
                is_whole = line.endswith(b"}\n")  # else empty, or the last of a cloud that was killed while it wrote
                if is_whole and line not in self._judged:
                    self._judged.add(line)
                    yield line


def judge_exchange(exchange: Json) -> list[Finding]:
    """All that is not as Google describes it in one request and its reply, less what is allowed."""
    if exchange["path"] == "/":  # `doctor` reads the clock off any reply
        return []
    method = method_of(exchange["host"], exchange["verb"], exchange["path"])
    name = method.id if method else "(no method)"
    found = [] if method is None else list(_deviations(method, exchange))
    if method is None and not exchange["agent"].startswith(_BY_HAND) and exchange["status"] != 401:  # of strangers
        found = [Deviation("path", "is not of a method that Google describes")]
    example = f"{exchange['verb']} {exchange['path']}?{exchange['query']} -> {exchange['status']}, {exchange['agent']}"
    return [Finding(name, one, example) for one in found if not any(rule.covers(name, one) for rule in ALLOWED)]


def _deviations(method: Method, exchange: Json) -> Iterator[Deviation]:
    status, is_media = exchange["status"], "alt=media" in exchange["query"]
    if status != 400:  # what Google refuses as malformed, the local cloud has refused too
        yield from _check_path(method, exchange["path"])
        yield from _check_query(method, exchange["query"])
        if exchange["request"] or status < 300:  # a call that failed at once was not read
            sent = _check_body(method, method.sends, exchange["request"] or "{}", is_sent=True)
            yield from _outside_of_mask(exchange, sent)
    if status >= 400 and not is_media:
        yield from check_error(status, exchange["reply"])
    elif status == 200 and not is_media and (exchange["reply"] or not method.is_upload):  # which may begin without one
        yield from _check_body(method, method.replies, exchange["reply"], is_sent=False)


def _check_path(method: Method, path: str) -> Iterator[Deviation]:
    match = method.pattern.fullmatch(path)
    assert match is not None
    for name, value in match.groupdict().items():
        if name in method.parameters and (problem := scalar_problem(unquote(value), method.parameters[name])):
            yield Deviation(f"path.{name}", problem)


def _check_query(method: Method, query: str) -> Iterator[Deviation]:
    given = parse_qsl(query, keep_blank_values=True)
    names = [name for name, _ in given]
    for name, value in given:
        schema = method.parameters.get(name)
        if schema is None or schema.get("location") != "query":
            yield Deviation(f"query.{name}", "is unknown")
        elif names.count(name) > 1 and not schema.get("repeated"):
            yield Deviation(f"query.{name}", "is given more than once")
        elif schema["type"] == "boolean" and value.lower() not in ("true", "false"):  # gcloud itself sends `True`
            yield Deviation(f"query.{name}", f"is {value!r}: not of type boolean")
        elif problem := scalar_problem(value, schema):
            yield Deviation(f"query.{name}", problem)
    for name, schema in method.parameters.items():
        if schema.get("location") == "query" and schema.get("required") and name not in names:
            yield Deviation(f"query.{name}", "is required, and was not sent")


def _outside_of_mask(exchange: Json, found: Iterator[Deviation]) -> Iterator[Deviation]:
    """Less the read-only fields that an update mask leaves out, which Google does not look at: google.aip.dev/134."""
    masks = [value for name, value in parse_qsl(exchange["query"]) if name == "updateMask"]
    masked = tuple(f"request.{field}" for mask in masks for field in mask.split(","))
    return (one for one in found if not masks or one.what != READ_ONLY or one.at.startswith(masked))


def _check_body(method: Method, schema: Json | None, text: str, *, is_sent: bool) -> Iterator[Deviation]:
    side = "request" if is_sent else "reply"
    if schema is None:
        if text not in ("", "{}"):
            yield Deviation(side, "has a body, and Google describes none")
        return
    try:
        body = json.loads(text)
    except ValueError:
        yield Deviation(side, "is not JSON")
        return
    yield from Checker(method, is_sent=is_sent).check(body, schema, side)


def check_error(status: int, text: str) -> Iterator[Deviation]:
    """Google's form of an error: https://google.aip.dev/193 and, for `errors`, Compute and Storage (2026-11-22)."""
    try:
        error = json.loads(text)["error"]
        unknown = set(error) - _ERROR_SCHEMA
    except (ValueError, TypeError, KeyError):
        yield Deviation("error", "is not in Google's form")
        return
    for name in unknown:
        yield Deviation(f"error.{name}", "is unknown")
    if error.get("code") != status:
        yield Deviation("error.code", f"is {error.get('code')!r}: not the HTTP status")
    if not isinstance(error.get("message"), str):
        yield Deviation("error.message", "is not text")
    if "status" in error and error["status"] not in code_pb2.Code.DESCRIPTOR.values_by_name:
        yield Deviation("error.status", f"is {error['status']!r}: not a google.rpc.Code")
    for detail in error.get("details", []):
        try:
            json_format.ParseDict(detail, any_pb2.Any())
        except (json_format.ParseError, TypeError) as cause:
            yield Deviation("error.details", f"is not a message: {cause}")
    for item in error.get("errors", []):
        if not {"message", "domain", "reason"} <= set(item):
            yield Deviation("error.errors[]", "lacks message, domain or reason")
