#!/usr/bin/env python3
"""Which Python on this VM has the trainer's TensorFlow? Finds it, or makes a virtual environment that has it.

Usage: environment.py tpu|gpu. Prints one JSON line {"python": PATH, "installed": bool} last. Standard library only.
One TF version everywhere, or a comparison is unfair: 2.20.0 is the newest that exists for TPUs. `tensorflow-tpu`
2.20.0 accepts libtpu versions with which `import tensorflow` aborts, so libtpu is pinned too.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

TENSORFLOW = "2.20.0"
# The last two decode photos; few workloads need them, but one environment for all is simpler, and they are small.
SHARED = ["pydantic>=2.7,<3", "google-crc32c>=1.5,<2", "opencv-python-headless>=4.9,<6", "simplejpeg>=1.8,<2"]
REQUIREMENTS = {
    "tpu": ["tensorflow-tpu==" + TENSORFLOW, "libtpu==0.0.21.1", *SHARED],
    "gpu": ["tensorflow[and-cuda]==" + TENSORFLOW, *SHARED],
}
CHECK = (
    "import importlib.metadata as m, pydantic, google_crc32c, simplejpeg, cv2\n"
    "names = ('tensorflow', 'tensorflow-cpu', 'tensorflow-tpu')\n"
    "found = {d.metadata['Name'].replace('_', '-'): d.version for d in m.distributions() if d.metadata['Name']}\n"
    f"raise SystemExit(not any(found.get(n) == {TENSORFLOW!r} for n in names))"
)


def suits(python: str) -> bool:
    """Whether this interpreter has what the trainer imports, in the pinned version."""
    try:
        done = subprocess.run([python, "-c", CHECK], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=120)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def main(kind: str) -> None:
    """Print the interpreter to use."""
    venv = os.path.join(os.path.expanduser("~"), ".orchestrate", "venv")
    python = os.path.join(venv, "bin", "python")
    installed = False
    if suits("python3"):
        python = "python3"
    elif not suits(python):
        subprocess.run([sys.executable, "-m", "venv", venv], check=True, stdout=sys.stderr)
        pip = [python, "-m", "pip", "install", "--quiet", "--only-binary", ":all:"]
        subprocess.run(pip + REQUIREMENTS[kind], check=True, stdout=sys.stderr)
        installed = True
    print(json.dumps({"python": python, "installed": installed}))


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in REQUIREMENTS:
        raise SystemExit("usage: environment.py " + "|".join(REQUIREMENTS))
    main(sys.argv[1])
