#!/usr/bin/env python3
"""Copies one file between this VM and the bucket: what the supervisor of a script brings and fetches.

    transfer.py get URL FILE
    transfer.py put URL FILE     replaces what is there
    transfer.py remove URL       none there is success

URL: gs://BUCKET/NAME, or on a machine that is not rented an absolute path. A failure is tried again, five times in
all; then it says why on stderr and ends with 1. Python >= 3.8, standard library only.
"""

from __future__ import annotations

import argparse
import http.client
import time

from uploads import Bucket, Destination, Folder  # type: ignore[import-not-found]  # lies beside this file

STORAGE_URL = "https://storage.googleapis.com"
PAUSES_S = (1.0, 2.0, 4.0, 8.0)


def place_of(url: str, storage_url: str) -> tuple[Destination, str]:
    """The folder or prefix that a file lies in, and its name there."""
    where, _, name = url.rpartition("/")
    if not where.startswith("gs://"):
        return Folder(where, ""), name
    bucket, _, prefix = where[len("gs://") :].partition("/")
    return Bucket(storage_url, bucket, prefix), name


def copy(verb: str, destination: Destination, name: str, path: str) -> None:
    """Raises as `Destination`."""
    if verb == "get":
        destination.get(name, path)
    elif verb == "put":
        destination.put(name, path)
    else:
        destination.remove(name)


def copy_patiently(verb: str, url: str, path: str, storage_url: str = STORAGE_URL) -> None:
    """The same, tried again after each of PAUSES_S. Raises as `copy`."""
    destination, name = place_of(url, storage_url)
    for pause_s in (*PAUSES_S, None):
        try:
            copy(verb, destination, name, path)
            return
        except (OSError, ValueError, KeyError, http.client.HTTPException):
            if pause_s is None:
                raise
            time.sleep(pause_s)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("verb", choices=("get", "put", "remove"))
    parser.add_argument("url")
    parser.add_argument("file", nargs="?", default="")
    parser.add_argument("--storage-url", default=STORAGE_URL)
    given = parser.parse_args()
    try:
        copy_patiently(given.verb, given.url, given.file, given.storage_url)
    except (OSError, ValueError, KeyError, http.client.HTTPException) as error:
        raise SystemExit(f"{given.url}: {error}") from None


if __name__ == "__main__":
    main()
