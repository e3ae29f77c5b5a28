"""Cloud Quotas in the form of a discovery document, from Google's client library: google-api-python-client has none."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from google.cloud import cloudquotas_v1
from google.cloud.cloudquotas_v1.services.cloud_quotas.transports.rest_base import _BaseCloudQuotasRestTransport
from google.protobuf.descriptor import Descriptor, FieldDescriptor

_VERBS = {"Get": "get", "List": "list", "Create": "create", "Update": "patch"}
_SCALARS = {
    FieldDescriptor.TYPE_STRING: {"type": "string"},
    FieldDescriptor.TYPE_BOOL: {"type": "boolean"},
    FieldDescriptor.TYPE_INT32: {"type": "integer", "format": "int32"},
    FieldDescriptor.TYPE_INT64: {"type": "string", "format": "int64"},
}
_WELL_KNOWN = {"Timestamp": "google-datetime", "Duration": "google-duration", "FieldMask": "google-fieldmask"}


def document() -> dict[str, Any]:
    """Methods with their paths, parameters and schemas; it does not say what is required or read-only."""
    found = [
        (name.removeprefix("_Base"), option)
        for name, described in vars(_BaseCloudQuotasRestTransport).items()
        if name.startswith("_Base")
        for option in described._get_http_options()
    ]
    return {
        "rootUrl": "https://cloudquotas.googleapis.com/",
        "servicePath": "",
        "revision": f"google-cloud-quotas {cloudquotas_v1.__version__}",
        "parameters": {"alt": {"type": "string", "location": "query"}},
        "methods": {f"{name} {option['uri']}": _method(name, option) for name, option in found},
        "schemas": dict(_schemas(cloudquotas_v1.QuotaPreference, cloudquotas_v1.QuotaInfo, *_lists())),
    }


def _lists() -> tuple[Any, ...]:
    return cloudquotas_v1.ListQuotaInfosResponse, cloudquotas_v1.ListQuotaPreferencesResponse


def _method(name: str, option: Mapping[str, str]) -> dict[str, Any]:
    verb, resource = re.fullmatch(r"(Get|List|Create|Update)(\w+)", name).groups()  # type: ignore[union-attr]
    path = re.sub(r"\{[\w.]+=([^}]+)\}", r"\1", option["uri"]).lstrip("/")
    collections = [part for part in path.split("/")[1:] if part not in ("*", "global")]
    request = getattr(cloudquotas_v1, f"{name}Request").meta.pb.DESCRIPTOR
    query = {
        field.json_name: {**_schema(field), "location": "query"} for field in request.fields if not field.message_type
    }
    return {
        "id": ".".join(["cloudquotas", *collections, _VERBS[verb]]),
        "httpMethod": option["method"].upper(),
        "path": re.sub(r"(\w+)/\*", r"\1/{\1Id}", path),
        "parameters": query | {"updateMask": {"type": "string", "location": "query"}},
        "response": {"$ref": f"{name}Response" if verb == "List" else resource},
        **({"request": {"$ref": resource}} if "body" in option else {}),
    }


def _schemas(*messages: Any) -> Iterator[tuple[str, Any]]:
    waiting: list[Descriptor] = [message.meta.pb.DESCRIPTOR for message in messages]
    seen = set()
    while waiting:
        kind = waiting.pop()
        if kind.name in seen:
            continue
        seen.add(kind.name)
        waiting += [field.message_type for field in kind.fields if field.message_type and not _is_map(field)]
        yield kind.name, {"type": "object", "properties": {field.json_name: _schema(field) for field in kind.fields}}


def _schema(field: FieldDescriptor) -> dict[str, Any]:
    if _is_map(field):
        return {"type": "object", "additionalProperties": _schema(field.message_type.fields_by_name["value"])}
    if field.enum_type:
        one: dict[str, Any] = {"type": "string", "enum": list(field.enum_type.values_by_name)}
    elif field.message_type:
        known = _WELL_KNOWN.get(field.message_type.name)
        one = {"type": "string", "format": known} if known else {"$ref": field.message_type.name}
    else:
        one = dict(_SCALARS[field.type])
    return {"type": "array", "items": one} if field.is_repeated else one


def _is_map(field: FieldDescriptor) -> bool:
    return bool(field.message_type and field.message_type.GetOptions().map_entry)
