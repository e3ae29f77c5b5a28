"""The Terraform set-up grants what the code requests: lists compared as text, without a provider."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from infra.gcp.permissions import ACT_AS, APIS, LOOKS, PERMISSIONS, ROLES_THAT_SIGN, SCHEDULER, TPU_ADMIN, WORKER
from infra.localcloud.account.project import scheduler_email
from orchestrator.config import Config
from orchestrator.doctor.checks import BUDGET_PART
from orchestrator.domain.names import MANAGED
from orchestrator.domain.plan import KILL_SLACK_S
from tests.google_permissions import GOOGLE_PERMISSIONS

FOLDER = Path(__file__).parents[2] / "infra" / "terraform"
WHOLE = "".join(path.read_text() for path in sorted(FOLDER.glob("*.tf")))
OPERATOR = {need.name for need in PERMISSIONS} | set(LOOKS)
OF_TPU = {name for name in OPERATOR if name.startswith("tpu.")}


def _list(name: str) -> list[str]:
    """The quoted entries of `name = [...]`."""
    [content] = re.findall(rf"\b{name} += \[([^\]]*)\]", WHOLE)
    return re.findall(r'"([^"]+)"', content)


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("apis", {need.name for need in APIS}),
        ("operator_permissions", OPERATOR - OF_TPU),
        ("worker_permissions", set(WORKER)),
        ("scheduler_permissions", set(SCHEDULER)),
    ],
)
def test_the_lists_are_those_of_the_code(name: str, names: set[str]) -> None:
    """Exactly, each once, in order."""
    assert _list(name) == sorted(names)


def test_google_knows_every_permission() -> None:
    """An unknown one in a role fails the whole apply: ours, and those of the set-up."""
    assert OPERATOR | {ACT_AS.name} <= GOOGLE_PERMISSIONS
    granted = re.findall(r"permissions += \[([^\]]*)\]", WHOLE)
    assert len(granted) == 4
    assert {name for names in granted for name in re.findall(r'"([^"]+)"', names)} <= GOOGLE_PERMISSIONS


def test_operators_have_the_tpu_api_by_the_role_of_google() -> None:
    """It holds all names of the TPU API, so it has those that we need."""
    [member] = re.findall(r'resource "google_project_iam_member" "operator_tpu" {(.*?)\n}', WHOLE, re.DOTALL)
    assert f'role    = "{TPU_ADMIN}"' in member
    assert "for_each = toset(var.operators)" in member


def test_what_else_the_code_knows_by_name() -> None:
    """The account that the local cloud plays, the agent's role, the keys of orchestrate.toml, the budget's part."""
    assert scheduler_email("p").startswith("orchestrate-scheduler@")
    assert 'account_id   = "orchestrate-scheduler"' in WHOLE
    assert 'role_id     = "orchestrateScheduler"' in WHOLE
    assert set(re.findall(r'role    = "(roles/cloudscheduler[^"]+)"', WHOLE)) <= ROLES_THAT_SIGN
    assert f"var.credit_usd * {BUDGET_PART})" in WHOLE
    assert 'credit_types_treatment = "EXCLUDE_ALL_CREDITS"' in WHOLE
    [told] = re.findall(r"<<-EOT\n(.*?)EOT", WHOLE, re.DOTALL)
    keys = re.findall(r"(\w+) = ", told)
    assert keys
    assert set(keys) <= set(Config.__dataclass_fields__)


def test_the_janitor_comes_after_every_kill_switch() -> None:
    """By the label and the deadline that everything of ours carries."""
    janitor = (FOLDER / "janitor.yaml").read_text()
    assert f'"oc-deadline"), "99999999999")) + {KILL_SLACK_S} > sys.now()' in janitor
    assert f'"{MANAGED}"), "") != "1"' in janitor
    assert '(node, "queuedResource"), "") != ""' in janitor


@pytest.mark.skipif(shutil.which("terraform") is None, reason="terraform is not installed")
def test_terraform_reads_it() -> None:
    """Syntax and form; `validate` would need Google's provider."""
    done = subprocess.run(
        ["terraform", "fmt", "-check", "-diff", str(FOLDER)], capture_output=True, encoding="utf-8", check=False
    )
    assert (done.returncode, done.stdout) == (0, ""), done
