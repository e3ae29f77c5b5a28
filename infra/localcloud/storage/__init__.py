"""What does the local cloud offer in place of Cloud Storage? The service, and what it bills per bucket."""

from infra.localcloud.storage.service import BilledBucket, StorageService

__all__ = ["BilledBucket", "StorageService"]
