"""Replays a recording of `doctor --record`: a server that answers what is in the file, in order, and nothing else."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from infra.gcp.clients import Endpoints, GoogleClients

UNRECORDED = 501


@dataclass(frozen=True)
class Answered:
    """A line of a recording. `request` and `response`: JSON, text, None, or {"omitted": BYTES}."""

    method: str
    host: str
    path: str
    request: Any
    status: int
    response: Any
    times: int

    @property
    def name(self) -> str:
        """The path without its query."""
        return self.path.partition("?")[0]


@dataclass
class Recording:
    """A file: its header and its answers. `unexpected`: what a replay was asked that is not in it."""

    header: dict[str, Any]
    answers: list[Answered]
    unexpected: list[str] = field(default_factory=list)

    @staticmethod
    def read(path: Path) -> Recording:
        header, *lines = map(json.loads, path.read_text("utf-8").splitlines())
        return Recording(header, [Answered(**line) for line in lines])

    @contextmanager
    def replayed(self, token_file: Path) -> Iterator[GoogleClients]:
        """Google's clients whose every call is answered from the recording; the last answer to a question stays.

        The question is method, path, query and body. A list of names in it may be another version's: the path decides.
        """
        told: dict[tuple[str, str], int] = {}
        lock = threading.Lock()

        def answer(method: str, path: str, body: Any) -> Answered | None:
            exact = [one for one in self.answers if (one.method, one.path, one.request) == (method, path, body)]
            name = path.partition("?")[0]
            alike = exact or [one for one in self.answers if (one.method, one.name) == (method, name)]
            in_order = [one for one in alike for _ in range(one.times)]
            with lock:
                turn = told[method, path] = told.get((method, path), -1) + 1
                if not in_order:
                    self.unexpected.append(f"{method} {path}")
            return in_order[min(turn, len(in_order) - 1)] if in_order else None

        class Handler(BaseHTTPRequestHandler):
            def _reply(self) -> None:
                sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                found = answer(self.command, self.path, json.loads(sent) if sent else None)
                body = b"" if found is None or found.response is None else json.dumps(found.response).encode()
                self.send_response(found.status if found else UNRECORDED)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            do_GET = do_POST = do_DELETE = _reply  # noqa: N815 - the names that http.server wants

            def log_message(self, *_: object) -> None:
                """Nothing on stderr."""

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        token_file.write_text("replayed")
        url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield GoogleClients(self.header["project"], Endpoints(url, token_file=token_file), retry_s=0.2)
        finally:
            server.shutdown()
            server.server_close()
