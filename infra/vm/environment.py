#!/usr/bin/env python3
"""Finds the Python on this VM that has the trainer's TensorFlow, or makes a virtual environment that has it.

Usage: environment.py tpu|gpu|host. Prints one JSON line {"python": PATH, "installed": bool} last, on a host also its
NVIDIA GPUs as "gpus": N. Standard library only.
What is installed is one TF version everywhere, or a comparison is unfair: 2.20.0 is the newest that exists for TPUs. A
machine that has 2.21 keeps it; records say which, and `compare` when two differ. `tensorflow-tpu` 2.20.0 accepts libtpu
versions with which `import tensorflow` aborts, and TPU VMs have Python 3.10, for which there is none between 0.0.21 and
those. Everything else that pip installs has the version in constraints.txt, the same for TPUs, GPUs and every Python.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
CONSTRAINTS = os.path.join(HERE, "constraints.txt")
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


def found_python(venv: str, requirements: list[str]) -> tuple[str, bool]:
    """(the interpreter to use, whether it had to be installed just now). Raises SystemExit saying what is missing."""
    python = os.path.join(venv, "bin", "python")
    for candidate in ("python3", python):
        if suits(candidate):
            return candidate, False
    try:
        # Ubuntu's Python lacks ensurepip, so venv cannot install pip; ours lies beside this file.
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True, stdout=sys.stderr)
        pip = [python, "-m", "pip", "install", "--quiet", "--only-binary", ":all:", "--constraint", CONSTRAINTS]
        subprocess.run(pip + requirements, check=True, stdout=sys.stderr, env={**os.environ, "PYTHONPATH": PIP})
    except (OSError, subprocess.CalledProcessError) as error:
        sys.stderr.flush()
        raise SystemExit(
            f"`python3` here (Python {platform.python_version()}) lacks {', '.join(requirements)}, and {venv} could "
            f"not be created with them ({error}): that needs Python 3.10 to 3.13 and a package index. Or install them "
            "yourself"
        ) from None
    return python, True


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
        python, installed = found_python(os.path.join(home, ".orchestrate", "venv"), REQUIREMENTS[kind])
        print(json.dumps({"python": python, "installed": installed}))
        return
    gpus = gpus_here()
    on_cpu = "tensorflow-cpu" if platform.machine() == "x86_64" else "tensorflow"
    requirements = REQUIREMENTS["gpu"] if gpus else [on_cpu + "==" + TENSORFLOW, *SHARED]
    # Attempts come and go; what they need stays, in a folder of its own for each set of requirements.
    with open(CONSTRAINTS) as file:
        wanted = (requirements, file.read(), sys.version_info[:2])
    venv = "venv-" + hashlib.sha256(repr(wanted).encode()).hexdigest()[:8]
    python, installed = found_python(os.path.join(home, ".cache", "orchestrate", venv), requirements)
    print(json.dumps({"python": python, "installed": installed, "gpus": gpus}))


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in (*REQUIREMENTS, "host"):
        raise SystemExit("usage: environment.py " + "|".join((*REQUIREMENTS, "host")))
    main(sys.argv[1])
