"""Cloud Storage: buckets, objects, uploads, what expires, and what it bills."""

from localcloud.storage.service import StorageService

__all__ = ["StorageService"]
