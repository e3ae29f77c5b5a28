"""Which SSH key does a run use? One of its own, made here, kept 0600, never put into a project's metadata."""

from __future__ import annotations

import os
from pathlib import Path


def ensure_key(path: Path, user: str) -> str:
    """The public half (one line, OpenSSH form) of the ed25519 key at `path`, which is made when it is not there."""
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        private = Ed25519PrivateKey.generate().private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
        )
        partial = path.with_suffix(".partial")
        partial.unlink(missing_ok=True)
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(private)
        partial.replace(path)
    key = serialization.load_ssh_private_key(path.read_bytes(), None)
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return f"{public.decode('ascii')} {user}"
