"""What does cloudscheduler.googleapis.com answer? The jobs of Cloud Scheduler v1, with HTTP targets, in UTC."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable

from google.cloud.scheduler_v1 import types
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from infra.localcloud.account.tokens import Tokens
from infra.localcloud.http.app import answer, json_body
from infra.localcloud.http.errors import already_exists, invalid, not_found
from infra.localcloud.http.messages import page, parse, write
from infra.localcloud.http.names import permission_denied_on
from infra.localcloud.metering.catalog import Catalog
from infra.localcloud.scheduler.cron import Cron
from infra.localcloud.scheduler.jobs import Jobs
from infra.localcloud.store import Document
from infra.localcloud.vm.metadata import NUMERIC_PROJECT_ID

Handler = Callable[[Request], Awaitable[Response]]
_LOCATION = "/v1/projects/{project}/locations/{location}"
_JOB = f"{_LOCATION}/jobs/{{job}}"
_ID = re.compile(r"[A-Za-z0-9_-]{1,500}")
_NOT_HERE = ("us-central2",)
"""Regions for a few customers, where Cloud Scheduler does not exist."""
_DESCRIPTION_MAX = 500
_RETRIES_MAX = 5
_SETTABLE = ("description", "httpTarget", "schedule", "timeZone", "retryConfig", "attemptDeadline")


class SchedulerService:
    """The routes of Cloud Scheduler; faults are planned under `cloudscheduler.jobs.create` and so on."""

    hosts = ("cloudscheduler.googleapis.com",)
    host_routes: tuple[Route, ...] = ()

    def __init__(self, project: str, tokens: Tokens, catalog: Catalog, jobs: Jobs) -> None:
        self._project = project
        self._tokens = tokens
        self._locations = [region for region in catalog.regions if region not in _NOT_HERE]
        self._jobs = jobs
        table: list[tuple[str, str, str, Handler]] = [
            ("POST", f"{_LOCATION}/jobs", "create", self._create),
            ("GET", f"{_LOCATION}/jobs", "list", self._list),
            ("POST", f"{_JOB}:pause", "pause", self._pause),
            ("POST", f"{_JOB}:resume", "resume", self._resume),
            ("POST", f"{_JOB}:run", "run", self._run),
            ("GET", _JOB, "get", self._get),
            ("DELETE", _JOB, "delete", self._delete),
            ("PATCH", _JOB, "patch", self._patch),
        ]
        self.routes = [
            Route(path, self._checked(handler), methods=[verb], name=f"cloudscheduler.jobs.{name}")
            for verb, path, name, handler in table
        ]

    def _checked(self, handler: Handler) -> Handler:
        async def endpoint(request: Request) -> Response:
            self._tokens.authorize(request, self.hosts[0])
            project, location = request.path_params["project"], request.path_params["location"]
            if project not in (self._project, NUMERIC_PROJECT_ID):
                raise permission_denied_on(f"projects/{project}")
            if location not in self._locations:
                raise invalid(f"Location '{location}' is not a valid location.")
            return await handler(request)

        return endpoint

    async def _create(self, request: Request) -> Response:
        body = parse(types.Job, await json_body(request))
        prefix = f"{self._parent(request)}/jobs/"
        name = body.get("name", "")
        if not name.startswith(prefix) or not _ID.fullmatch(name.removeprefix(prefix)):
            raise invalid(f"Job.name must be {prefix}[JOB_ID], JOB_ID of letters, digits, '-' and '_': '{name}'")
        if self._jobs.get(name) is not None:
            raise already_exists(name)
        return _shown(self._jobs.create({"name": name, **_checked(body)}))

    async def _list(self, request: Request) -> Response:
        query = request.query_params
        jobs = [job["resource"] for job in self._jobs.all(f"{self._parent(request)}/jobs/")]
        shown, token = page(jobs, query.get("pageSize", ""), query.get("pageToken", ""))
        return answer(write(types.ListJobsResponse, {"jobs": shown, "nextPageToken": token}))

    async def _get(self, request: Request) -> Response:
        return _shown(self._job(request))

    async def _delete(self, request: Request) -> Response:
        self._jobs.delete(self._job(request))
        return answer({})

    async def _patch(self, request: Request) -> Response:
        """UpdateJob: the fields of the mask, or all that are given."""
        body = parse(types.Job, await json_body(request))
        job = self._job(request)
        mask = [_camel(path) for path in request.query_params.get("updateMask", "").split(",") if path]
        unknown = [path for path in mask if path not in _SETTABLE]
        if unknown:
            raise invalid(f"Invalid update mask {mask}: {', '.join(_SETTABLE)} can be updated.")
        new = {key: value for key, value in body.items() if key in (mask or _SETTABLE)}
        kept = {key: value for key, value in job["resource"].items() if key in _SETTABLE and key not in mask}
        rest = {key: value for key, value in job["resource"].items() if key not in _SETTABLE}
        return _shown(self._jobs.change(job, {**rest, **_checked({**kept, **new})}))

    async def _pause(self, request: Request) -> Response:
        job = self._job(request)
        return _shown(self._jobs.change(job, {**job["resource"], "state": "PAUSED"}))

    async def _resume(self, request: Request) -> Response:
        job = self._job(request)
        return _shown(self._jobs.change(job, {**job["resource"], "state": "ENABLED"}))

    async def _run(self, request: Request) -> Response:
        """Answers at once; that and how the attempt ended shows in `lastAttemptTime` and `status`."""
        return _shown(self._jobs.run(self._job(request)))

    def _parent(self, request: Request) -> str:
        return f"projects/{self._project}/locations/{request.path_params['location']}"

    def _job(self, request: Request) -> Document:
        name = f"{self._parent(request)}/jobs/{request.path_params['job']}"
        job = self._jobs.get(name)
        if job is None:
            raise not_found(name)
        return job


def _checked(body: Document) -> Document:
    """What a client may set of a job. Raises ApiError 400 for what Cloud Scheduler refuses."""
    job = {key: body[key] for key in _SETTABLE if key in body}
    try:
        Cron.parse(job.get("schedule", ""))
    except ValueError as cause:
        raise invalid(f"Schedule or time zone is invalid: {cause}") from cause
    if job.get("timeZone", "UTC").lower() not in ("utc", "etc/utc"):
        raise invalid(f"Schedule or time zone is invalid: '{job['timeZone']}' (the local cloud knows UTC only)")
    if len(job.get("description", "")) > _DESCRIPTION_MAX:
        raise invalid(f"Job.description has more than {_DESCRIPTION_MAX} characters.")
    if not 0 <= job.get("retryConfig", {}).get("retryCount", 0) <= _RETRIES_MAX:
        raise invalid(f"RetryConfig.retry_count must be between 0 and {_RETRIES_MAX}.")
    target = job.get("httpTarget")
    if target is None:
        raise invalid("Job.target is required (the local cloud has HTTP targets only).")
    if not target.get("uri", "").startswith(("http://", "https://")):
        raise invalid(f"HttpTarget.url must start with http:// or https://: '{target.get('uri', '')}'")
    if "oauthToken" in target and "@" not in target["oauthToken"].get("serviceAccountEmail", ""):
        raise invalid("HttpTarget.oauth_token.service_account_email is no email address.")
    job["httpTarget"] = {"httpMethod": "POST", **target}
    return {"timeZone": "UTC", "attemptDeadline": "180s", **job}


def _shown(job: Document) -> Response:
    return answer(write(types.Job, job["resource"]))


def _camel(path: str) -> str:
    return re.sub(r"_([a-z])", lambda match: match[1].upper(), path)
