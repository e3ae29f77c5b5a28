#!/usr/bin/env python3
"""Finds the Python on this VM that has the trainer's TensorFlow, or makes a virtual environment that has it.

Usage: environment.py tpu|gpu|host. Prints one JSON line last: {"python": PATH, "installed": bool, "environment": TEXT},
the text for the record; on a host also its NVIDIA GPUs as "gpus": N. Python >= 3.8, standard library only. Writes below
the home folder only.
What is installed is one TF version everywhere, or a comparison is unfair: 2.20.0 is the newest that exists for TPUs. A
machine that has 2.21 keeps it; records say which, and `compare` when two differ. `tensorflow-tpu` 2.20.0 accepts libtpu
versions with which `import tensorflow` aborts, and TPU VMs have Python 3.10, for which there is none between 0.0.21 and
those. Everything else that pip installs has the version in constraints.txt, the same for TPUs, GPUs and every Python.
A Python for which these do not exist stays as it is: uv, whose version and hashes are in uv.txt, fetches another one
beside it, a build whose checksum that version of uv has built in.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
CONSTRAINTS = os.path.join(HERE, "constraints.txt")
UV_PIN = os.path.join(HERE, "uv.txt")
PIP = os.path.join(HERE, "pip.zip")
TENSORFLOW = "2.20.0"
SUITABLE = ("2.20.0", "2.21.0")
"""What the trainer is tested with."""
# The last two decode photos; few workloads need them, but one environment for all is simpler, and they are small.
SHARED = ["pydantic>=2.7,<3", "google-crc32c>=1.5,<2", "opencv-python-headless>=4.9,<6", "simplejpeg>=1.8,<2"]
REQUIREMENTS = {
    "tpu": ["tensorflow-tpu==" + TENSORFLOW, "libtpu==0.0.21", *SHARED],
    "gpu": ["tensorflow[and-cuda]==" + TENSORFLOW, *SHARED],
}
FIRST, LAST = (3, 10), (3, 12)
"""The Pythons for which a package index has everything that is pinned; `make test-vm` asks one."""
OWN_PYTHON = "3.12.16"
"""What uv fetches where the machine's Python is none of these."""
NEEDED_GIB = {"tpu": 3, "gpu": 9, "cpu": 3}
"""Free space under the home folder while the environment is made: docs/limits.md has what was measured."""
PIP_INSTALL = ["-m", "pip", "install", "--quiet", "--no-cache-dir", "--only-binary", ":all:"]
CHECK = (
    "import importlib.metadata as m, pydantic, google_crc32c, simplejpeg, cv2\n"
    "names = ('tensorflow', 'tensorflow-cpu', 'tensorflow-tpu')\n"
    "found = {d.metadata['Name'].replace('_', '-'): d.version for d in m.distributions() if d.metadata['Name']}\n"
    f"raise SystemExit(not any(found.get(n) in {SUITABLE!r} for n in names))"
)


def suits(python: str) -> bool:
    """Whether this interpreter has what the trainer imports, in a version it is tested with."""
    try:
        done = subprocess.run([python, "-c", CHECK], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


class Maker:
    """Makes an environment in a folder; `kind`: tpu, gpu or cpu."""

    def __init__(self, kind: str, folder: str, requirements: list[str]) -> None:
        self._kind = kind
        self._folder = folder
        self._tmp = ""
        self._requirements = requirements
        self._fits = FIRST <= sys.version_info[:2] <= LAST
        with open(CONSTRAINTS, "rb") as file:
            self._constraints = file.read()

    def found(self, venv: str) -> dict[str, object]:
        """The interpreter to use. Raises SystemExit saying what is missing."""
        python = os.path.join(self._folder, venv, "bin", "python")
        if suits("python3"):
            return {"python": "python3", "installed": False, "environment": "the machine's Python and packages"}
        pins = hashlib.sha256(self._constraints).hexdigest()[:8]
        source = "the machine's Python" if self._fits else "uv's Python"
        ready = {"python": python, "installed": False, "environment": f"{source}, packages of constraints {pins}"}
        if suits(python):
            return ready
        self._make(os.path.join(self._folder, venv), python)
        return {**ready, "installed": True}

    def name(self) -> str:
        """The environment's folder where several are kept: of requirements, constraints and the Python."""
        wanted = (self._requirements, self._constraints, sys.version_info[:2])
        return "venv-" + hashlib.sha256(repr(wanted).encode()).hexdigest()[:8]

    def _make(self, venv: str, python: str) -> None:
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        free_gib, needed_gib = shutil.disk_usage(self._folder).free / 2**30, NEEDED_GIB[self._kind]
        if free_gib < needed_gib:
            raise self._failed(f"{self._folder} has {free_gib:.1f} GiB free, and {needed_gib} GiB are needed")
        with tempfile.TemporaryDirectory(dir=self._folder) as self._tmp:
            # Ubuntu's Python lacks ensurepip, so venv cannot install pip; ours lies beside this file.
            self._run([sys.executable if self._fits else self._own_python(), "-m", "venv", "--without-pip", venv])
            self._run([python, *PIP_INSTALL, "--constraint", CONSTRAINTS, *self._requirements], PYTHONPATH=PIP)

    def _own_python(self) -> str:
        """Path of the Python that uv has fetched. The pip that was sent along may be too new for this one's."""
        uv = os.path.join(self._folder, "uv")
        get = [sys.executable, *PIP_INSTALL, "--no-deps", "--require-hashes", "--upgrade", "--target", uv, "-r", UV_PIN]
        try:
            self._run(get, PYTHONPATH=PIP)
        except SystemExit:
            self._run(get)
        kept = {"UV_PYTHON_INSTALL_DIR": os.path.join(uv, "python"), "UV_NO_CACHE": "1", "UV_NO_CONFIG": "1"}
        command = [os.path.join(uv, "bin", "uv"), "python"]
        self._run([*command, "install", "--no-bin", OWN_PYTHON], **kept)
        return self._run([*command, "find", "--managed-python", OWN_PYTHON.rpartition(".")[0]], **kept).strip()

    def _run(self, argv: list[str], **variables: str) -> str:
        """What it prints. Raises SystemExit when it fails. It unpacks beside what it makes: /tmp may be small."""
        env = {**os.environ, "TMPDIR": self._tmp, **variables}
        try:
            return subprocess.run(argv, check=True, stdout=subprocess.PIPE, env=env).stdout.decode()
        except (OSError, subprocess.CalledProcessError) as error:
            raise self._failed(f"`{' '.join(argv[:4])} ..`: {error}") from None

    def _failed(self, why: str) -> SystemExit:
        sys.stderr.flush()
        return SystemExit(
            f"`python3` here (Python {platform.python_version()}) lacks {', '.join(self._requirements)}, and no "
            f"environment could be made that has them: {why}. That needs a package index and Python 3.{FIRST[1]} to "
            f"3.{LAST[1]}; where there is another one, also GitHub, from where uv fetches Python {OWN_PYTHON}"
        )


def gpus_here() -> int:
    """How many GPUs NVIDIA's driver shows; none where there is no driver."""
    try:
        done = subprocess.run(["nvidia-smi", "-L"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return 0
    return len([line for line in done.stdout.splitlines() if line.startswith(b"GPU ")]) if done.returncode == 0 else 0


def main(kind: str) -> None:
    """Print the interpreter to use."""
    os.environ["ORCHESTRATE_JOB"] = HERE  # so that a host finds what this starts
    home = os.path.expanduser("~")
    if kind != "host":
        maker = Maker(kind, os.path.join(home, ".orchestrate"), REQUIREMENTS[kind])
        print(json.dumps(maker.found("venv")))
        return
    gpus = gpus_here()
    on_cpu = "tensorflow-cpu" if platform.machine() == "x86_64" else "tensorflow"
    requirements = REQUIREMENTS["gpu"] if gpus else [on_cpu + "==" + TENSORFLOW, *SHARED]
    # Attempts come and go; what they need stays, in a folder of its own for each set of requirements.
    maker = Maker("gpu" if gpus else "cpu", os.path.join(home, ".cache", "orchestrate"), requirements)
    print(json.dumps({**maker.found(maker.name()), "gpus": gpus}))


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in (*REQUIREMENTS, "host"):
        raise SystemExit("usage: environment.py " + "|".join((*REQUIREMENTS, "host")))
    main(sys.argv[1])
