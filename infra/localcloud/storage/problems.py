"""Errors of Cloud Storage, with the wording and reasons that clients match on; one function each."""

from __future__ import annotations

from xml.sax.saxutils import escape

from starlette.responses import Response

from infra.localcloud.http.errors import ApiError, invalid

_XML_CODE_OF_HTTP = {
    400: "InvalidArgument",
    401: "AuthenticationRequired",
    403: "AccessDenied",
    412: "PreconditionFailed",
    416: "InvalidRange",
    429: "SlowDown",
    503: "ServiceUnavailable",
}


def no_such_bucket() -> ApiError:
    """404 for a bucket; the name is not repeated, as at Google."""
    return ApiError("NOT_FOUND", "The specified bucket does not exist.", reason="notFound")


def no_such_object(bucket: str, name: str) -> ApiError:
    """404 for an object, or for a generation of it that is not the live one."""
    return ApiError("NOT_FOUND", f"No such object: {bucket}/{name}", reason="notFound")


def no_such_upload(upload_id: str) -> ApiError:
    """404 for a resumable session nobody started, or that ended more than a week ago."""
    return ApiError("NOT_FOUND", f"No such upload session: {upload_id}", reason="notFound")


def conflict(message: str) -> ApiError:
    """409 of a bucket that exists already or is not empty."""
    return ApiError("ALREADY_EXISTS", message, reason="conflict")


def required(parameter: str) -> ApiError:
    """400 for a query parameter or field that is missing."""
    return invalid(f"Required parameter: {parameter}", reason="required")


def unsupported(feature: str) -> ApiError:
    """400 for a feature of Google's that this cloud does not have: refusing is safer than pretending."""
    return invalid(f"{feature} is not available in the local cloud.", reason="invalid")


def bad_range() -> ApiError:
    """416: the first requested byte is beyond the object's end."""
    return ApiError(
        "INVALID_ARGUMENT", "The requested range cannot be satisfied.", reason="requestedRangeNotSatisfiable", http=416
    )


def client_closed() -> ApiError:
    """499: the caller disconnected; nobody reads this reply, but it ends the request."""
    return ApiError("ABORTED", "Client closed request.", reason="clientClosedRequest", http=499)


def as_xml(error: ApiError, is_bucket_missing: bool) -> Response:
    """The same refusal as the XML interface words it."""
    if error.http == 404:
        code = "NoSuchBucket" if is_bucket_missing else "NoSuchKey"
    else:
        code = _XML_CODE_OF_HTTP.get(error.http, "InternalError")
    body = (
        "<?xml version='1.0' encoding='UTF-8'?>"
        f"<Error><Code>{code}</Code><Message>{escape(error.message)}</Message></Error>"
    )
    return Response(body, error.http, media_type="application/xml; charset=UTF-8")
