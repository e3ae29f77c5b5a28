"""What a local cloud records for the judge: requests and replies as they are, and nothing that is secret or large."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from infra.localcloud.http.recording import Recorder

RELATED = (
    b'--b\r\nContent-Type: application/json\r\n\r\n{"name": "o"}\r\n'
    b"--b\r\nContent-Type: text/plain\r\n\r\nthe content\r\n--b--"
)
TYPE_OF_RELATED = {"Content-Type": "multipart/related; boundary=b"}


async def cloud(scope: Scope, receive: Receive, send: Send) -> None:
    """Reads the request, and replies with JSON; with an object's content when that is asked for."""
    request = Request(scope, receive)
    await request.body()
    is_media = request.query_params.get("alt") == "media"
    reply = Response(b'{"its": "content"}', media_type="application/json") if is_media else JSONResponse({"done": True})
    await reply(scope, receive, send)


def recorded(file: Path, *calls: tuple[str, str, dict[str, Any]]) -> list[dict[str, Any]]:
    """The lines that these requests leave in the file."""

    async def send_all() -> None:
        transport = httpx.ASGITransport(Recorder(cloud, file))
        async with httpx.AsyncClient(transport=transport, base_url="https://storage.googleapis.com") as client:
            for verb, url, more in calls:
                await client.request(verb, url, **more)

    asyncio.run(send_all())
    return [json.loads(line) for line in file.read_text().splitlines() if line]


def test_requests_and_replies_are_recorded_for_their_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "traffic.jsonl"
    [line] = recorded(file, ("POST", "/storage/v1/b?project=p", {"json": {"name": "b"}}))
    assert (line["host"], line["verb"], line["path"], line["query"], line["status"]) == (
        "storage.googleapis.com", "POST", "/storage/v1/b", "project=p", 200,
    )  # fmt: skip
    assert (json.loads(line["request"]), json.loads(line["reply"])) == ({"name": "b"}, {"done": True})
    assert file.stat().st_mode & 0o777 == 0o600


def test_tokens_and_content_are_left_out(tmp_path: Path) -> None:
    upload = "/upload/storage/v1/b/b/o?uploadType"
    lines = recorded(
        tmp_path / "traffic.jsonl",
        ("GET", "/storage/v1/b/b?access_token=secret", {"headers": {"Authorization": "Bearer secret"}}),
        ("POST", f"{upload}=multipart", {"content": RELATED, "headers": TYPE_OF_RELATED}),
        ("POST", f"{upload}=media&name=o", {"json": "content"}),
        ("PUT", f"{upload}=resumable&upload_id=secret", {"json": "content"}),
        ("GET", "/storage/v1/b/b/o/o?alt=media", {}),
        ("GET", "/b/o", {}),
        ("POST", "/token", {"json": {"assertion": "secret"}}),
    )  # fmt: skip
    assert [line["path"].rsplit("/", 2)[-1] for line in lines] == ["b", "o", "o", "o", "o"], "no XML, no tokens"
    assert json.loads(lines[1]["request"]) == {"name": "o"}
    assert [word for word in ("secret", "content") if word in json.dumps(lines)] == []
