"""Google's error replies: one exception type, and one function per kind of failure.

Handlers only raise; `app.py` turns the error into HTTP. One JSON body serves every service: the google.rpc
style (`status`, `details`) and the older Compute/Storage style (`errors[]`) are both in it, as in Google's answers.
"""

from __future__ import annotations

from typing import Any

HTTP_OF_STATUS = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ALREADY_EXISTS": 409,
    "ABORTED": 409,
    "RESOURCE_EXHAUSTED": 429,
    "INTERNAL": 500,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}
STATUS_OF_HTTP = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    500: "INTERNAL",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
"""What most failures of that HTTP code are, where only the code is known."""
RPC_CODE_OF_STATUS = {
    "INVALID_ARGUMENT": 3,
    "DEADLINE_EXCEEDED": 4,
    "NOT_FOUND": 5,
    "ALREADY_EXISTS": 6,
    "PERMISSION_DENIED": 7,
    "RESOURCE_EXHAUSTED": 8,
    "FAILED_PRECONDITION": 9,
    "ABORTED": 10,
    "UNIMPLEMENTED": 12,
    "INTERNAL": 13,
    "UNAVAILABLE": 14,
    "UNAUTHENTICATED": 16,
}


class ApiError(Exception):
    """An error reply: HTTP code, google.rpc status, reason, message and details."""

    def __init__(
        self,
        status: str,
        message: str,
        *,
        reason: str = "",
        http: int | None = None,
        details: list[dict[str, Any]] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.reason = reason
        self.http = http or HTTP_OF_STATUS[status]
        self.details = details or []

    def body(self) -> dict[str, Any]:
        """The JSON body of the reply."""
        error: dict[str, Any] = {
            "code": self.http,
            "message": self.message,
            "status": self.status,
            "errors": [{"domain": "global", "reason": self.reason or self.status.lower(), "message": self.message}],
        }
        if self.details:
            error["details"] = self.details
        return {"error": error}

    def rpc_status(self) -> dict[str, Any]:
        """The same as a google.rpc.Status, for an operation that ends in failure."""
        return {"code": RPC_CODE_OF_STATUS[self.status], "message": self.message, "details": self.details}


class NoReply(Exception):
    """The caller gets no reply at all, until it hangs up."""


def error_info(reason: str, **metadata: str) -> dict[str, Any]:
    """A google.rpc.ErrorInfo detail, which carries the machine-readable reason."""
    return {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": reason,
        "domain": "googleapis.com",
        "metadata": metadata,
    }


def not_found(what: str) -> ApiError:
    """404: the resource does not exist."""
    return ApiError("NOT_FOUND", f"Resource '{what}' was not found", reason="notFound")


def already_exists(what: str) -> ApiError:
    """409: a create met a resource of the same name."""
    return ApiError("ALREADY_EXISTS", f"Resource '{what}' already exists", reason="alreadyExists")


def invalid(message: str, reason: str = "invalid") -> ApiError:
    """400: the request is wrong in itself."""
    return ApiError("INVALID_ARGUMENT", message, reason=reason)


def precondition_failed(message: str = "At least one of the pre-conditions you specified did not hold.") -> ApiError:
    """412: a Cloud Storage generation precondition does not hold."""
    return ApiError("FAILED_PRECONDITION", message, reason="conditionNotMet", http=412)


def forbidden(message: str, reason: str = "IAM_PERMISSION_DENIED", **metadata: str) -> ApiError:
    """403 with an ErrorInfo reason (SERVICE_DISABLED, IAM_PERMISSION_DENIED, BILLING_DISABLED ...)."""
    return ApiError("PERMISSION_DENIED", message, reason="forbidden", details=[error_info(reason, **metadata)])


def permission_denied_on(resource: str) -> ApiError:
    """403 for a project or location that is not there: Google does not tell the two apart."""
    return ApiError(
        "PERMISSION_DENIED", f"Permission denied on '{resource}' (or it may not exist).", reason="forbidden"
    )
