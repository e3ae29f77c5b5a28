"""What time alone changes: lifecycle rules, expired soft-deleted data, and upload sessions that nobody finished."""

from __future__ import annotations

from datetime import datetime

from infra.localcloud.clock import CloudClock
from infra.localcloud.storage.metadata_store import MetadataStore
from infra.localcloud.storage.model import Bucket, StoredObject
from infra.localcloud.store import Document

_DAY_S = 86_400.0
SESSION_LIFE_S = 7 * _DAY_S
# Google applies lifecycle rules about once a day; a minute of this cloud's clock is enough, and keeps a tick cheap.
_INTERVAL_S = 60.0


class Housekeeper:
    """Applies what time alone changes."""

    def __init__(self, metadata: MetadataStore, clock: CloudClock) -> None:
        self._metadata = metadata
        self._clock = clock
        self._due_at_s = 0.0

    def sweep(self) -> None:
        """Sweep if a minute has passed since the last time."""
        now = self._clock.now()
        if now < self._due_at_s:
            return
        self._due_at_s = now + _INTERVAL_S
        for bucket in self._metadata.buckets():
            self._apply_lifecycle(bucket, now)
            self._purge_expired(bucket, now)
        for bucket in self._metadata.deleted_buckets():
            self._purge_expired(bucket, now)
            if not self._metadata.soft_deleted(bucket):
                self._metadata.forget_deleted_bucket(bucket)
        for session in self._metadata.sessions():
            if session.created_at_s + SESSION_LIFE_S <= now:
                self._metadata.forget_session(session)

    def _purge_expired(self, bucket: Bucket, now: float) -> None:
        for kept in self._metadata.soft_deleted(bucket):
            if kept.hard_delete_at_s <= now:
                self._metadata.purge(bucket, kept)

    def _apply_lifecycle(self, bucket: Bucket, now: float) -> None:
        rules = bucket.settings.get("lifecycle", {}).get("rule", [])
        if not rules:
            return
        for item in list(self._metadata.objects(bucket)):
            due = [rule["action"] for rule in rules if _applies(rule["condition"], item, now)]
            # Google: when several actions apply at once, Delete wins.
            if any(action["type"] == "Delete" for action in due):
                self._metadata.delete(bucket, item)
            else:
                self._set_class(bucket, item, due)

    def _set_class(self, bucket: Bucket, item: StoredObject, due: list[Document]) -> None:
        classes = [action["storageClass"] for action in due if action["type"] == "SetStorageClass"]
        if classes and classes[0] != item.settings["storageClass"]:
            self._metadata.change_object(bucket, item, {**item.settings, "storageClass": classes[0]})


def _applies(condition: Document, item: StoredObject, now: float) -> bool:
    """True when every condition of the rule is met. Only live generations exist, so the rest never matches."""
    if condition.get("isLive") is False or condition.get("numNewerVersions"):
        return False
    if now - item.created_at_s < float(condition.get("age", 0)) * _DAY_S:
        return False
    before = condition.get("createdBefore")
    if before and item.created_at_s >= datetime.fromisoformat(f"{before}T00:00:00+00:00").timestamp():
        return False
    return _name_and_class_match(condition, item)


def _name_and_class_match(condition: Document, item: StoredObject) -> bool:
    prefixes, suffixes = condition.get("matchesPrefix"), condition.get("matchesSuffix")
    classes = condition.get("matchesStorageClass")
    return (
        (not prefixes or item.name.startswith(tuple(prefixes)))
        and (not suffixes or item.name.endswith(tuple(suffixes)))
        and (not classes or item.settings["storageClass"] in classes)
    )
