"""The account of the local cloud: identity, permissions, quotas, billing."""
