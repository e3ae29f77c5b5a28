"""`--download`: fetches MNIST from its mirrors, checked by the digests of its files."""

from __future__ import annotations

import gzip
import hashlib
import urllib.error
import urllib.request
import zlib
from pathlib import Path

from trainer.errors import DataError

# The mirrors that Keras' and PyTorch's users are sent to; the files are the same.
MIRRORS = ("https://storage.googleapis.com/cvdf-datasets/mnist/", "https://ossci-datasets.s3.amazonaws.com/mnist/")
MD5 = {  # of the unpacked files, however they are packed; a guard against broken downloads, not against attackers
    "train-images-idx3-ubyte.gz": "6bbc9ace898e44ae57da46a324031adb",
    "train-labels-idx1-ubyte.gz": "a25bea736e30d166cdddb491f175f624",
    "t10k-images-idx3-ubyte.gz": "2646ac647ad5339dbf082846283269ea",
    "t10k-labels-idx1-ubyte.gz": "27ae3e4e09519cfbb04c329615203637",
}
_TIMEOUT_S = 30


def download(kind: str, directory: Path, mirrors: tuple[str, ...] = MIRRORS) -> None:
    """Put MNIST's four files into `directory`; those that are there and whole stay.

    Raises DataError when `kind` has no public source without a licence to accept, or no mirror can be reached.
    """
    if kind != "mnist":
        problem = f"{kind} cannot be downloaded: their sources ask for an account or a licence"
        raise DataError("--download", problem, "download them yourself and give the folder with --data_dir")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, md5 in MD5.items():
            path = directory / name
            if not (path.is_file() and _md5(path.read_bytes()) == md5):
                _fetch(name, md5, path, mirrors)
    except OSError as error:
        raise DataError(directory, f"cannot be written ({error.strerror or error})", "check it and retry") from error


def _fetch(name: str, md5: str, path: Path, mirrors: tuple[str, ...]) -> None:
    problems = []
    for mirror in mirrors:
        try:
            with urllib.request.urlopen(mirror + name, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - our constants
                content: bytes = answer.read()
        except (urllib.error.URLError, TimeoutError, OSError) as error:
            problems.append(f"{mirror}: {getattr(error, 'reason', error)}")
            continue
        if _md5(content) != md5:
            problems.append(f"{mirror}: the file is not the published one")
            continue
        partial = path.with_name(path.name + ".partial")
        partial.write_bytes(content)
        partial.replace(path)
        return
    fix = "there may be no network here: copy the four files into the folder, or leave --download out for the sample"
    raise DataError(name, f"cannot be downloaded ({'; '.join(problems)})", fix)


def _md5(packed: bytes) -> str | None:
    """Return the digest of a gzip file's content; None when it is incomplete."""
    try:
        return hashlib.md5(gzip.decompress(packed), usedforsecurity=False).hexdigest()
    except (OSError, EOFError, zlib.error):
        return None
