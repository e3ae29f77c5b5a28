"""The folder in which a user types commands, with packages of her own that have the names of ours."""

from __future__ import annotations

from pathlib import Path


def make_user_folder(path: Path) -> Path:
    """Make it. Whoever imports the user's `trainer` for ours fails, in whatever process."""
    for name in ("orchestrator", "infra", "trainer", "localcloud"):
        (path / name).mkdir(parents=True)
        (path / name / "__init__.py").write_text(f"raise SystemExit('imported the {name} of the folder, not ours')\n")
    return path
