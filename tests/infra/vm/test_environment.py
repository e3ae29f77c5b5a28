"""Creating the Python environment on a VM: without ensurepip, and without any package."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from infra.vm import payload
from infra.vm.environment import CONSTRAINTS, REQUIREMENTS, TENSORFLOW

MODULES = {"google-crc32c": "google_crc32c", "opencv-python-headless": "cv2"}


def _pinned() -> dict[str, str]:
    """Package to version, as this Python gets them."""
    pins = map(Requirement, Path(CONSTRAINTS).read_text().splitlines())
    return {pin.name: str(pin.specifier)[2:] for pin in pins if pin.marker is None or pin.marker.evaluate()}


def _python_without_ensurepip(folder: Path) -> Path:
    """A Python of its own: this one's program and standard library, less ensurepip, and no packages."""
    stdlib = Path(sysconfig.get_path("stdlib"))
    library, programs = folder / "lib" / stdlib.name, folder / "bin"
    library.mkdir(parents=True)
    for entry in stdlib.iterdir():
        if entry.name not in ("ensurepip", "site-packages", "dist-packages"):
            (library / entry.name).symlink_to(entry)
    programs.mkdir()
    program = programs / "python3"
    program.write_bytes(Path(sys.executable).resolve().read_bytes())
    program.chmod(0o755)
    return program


def _wheel(folder: Path, name: str, version: str) -> None:
    """A package that holds nothing but an importable module."""
    module, about = MODULES.get(name, name.replace("-", "_")), f"{name.replace('-', '_')}-{version}.dist-info"
    files = {
        f"{module}.py": "",
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nProvides-Extra: and-cuda\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    with zipfile.ZipFile(folder / f"{name.replace('-', '_')}-{version}-py3-none-any.whl", "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)
        archive.writestr(f"{about}/RECORD", "".join(f"{path},,\n" for path in (*files, f"{about}/RECORD")))


def test_the_trainer_is_tested_with_what_vms_get() -> None:
    """`make test-vm` installs the same versions; TensorFlow without CUDA."""
    lock = (Path(__file__).parents[2] / "vm-tensorflow.lock").read_text()
    locked = dict(re.findall(r"^([a-z-]+)==([^ ]+)", lock, re.MULTILINE))
    pinned = _pinned()
    assert locked == {"tensorflow-cpu": TENSORFLOW, "keras": pinned["keras"], "numpy": pinned["numpy"]}
    assert pinned["tensorflow"] == pinned["tensorflow-tpu"] == TENSORFLOW


@pytest.mark.parametrize("kind", ["tpu", "gpu"])
def test_it_is_made_without_ensurepip(kind: str, tmp_path: Path) -> None:
    """As on Ubuntu, from an empty home, with the pip that is sent along; the second time it is found."""
    work, wheels, home = tmp_path / "work", tmp_path / "wheels", tmp_path / "home"
    for folder in (work, wheels, home):
        folder.mkdir()
    for name, path in payload.files(tmp_path / "packed").items():
        (work / name).write_bytes(path.read_bytes())
    pinned = _pinned()
    for requirement in REQUIREMENTS[kind]:
        name = re.split(r"[\[<>=]", requirement)[0]
        _wheel(wheels, name, pinned[name])
    python = _python_without_ensurepip(tmp_path / "python")
    env = {
        "HOME": str(home), "PATH": f"{python.parent}:/usr/bin:/bin", "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels),
        "PIP_CONFIG_FILE": os.devnull, "LD_LIBRARY_PATH": sysconfig.get_config_var("LIBDIR") or "",
    }  # fmt: skip
    assert subprocess.run([python, "-c", "import ensurepip"], env=env, capture_output=True, check=False).returncode == 1
    for installed in (True, False):
        argv = ["python3", str(work / "environment.py"), kind]
        done = subprocess.run(argv, env=env, capture_output=True, encoding="utf-8", timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        said = json.loads(done.stdout.splitlines()[-1])
        assert said == {"python": str(home / ".orchestrate/venv/bin/python"), "installed": installed}
