"""Parameter types that several commands take: comma-separated lists, decimal amounts."""

from __future__ import annotations

import re
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from datetime import date
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli import completion

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from orchestrator.config import Config
    from orchestrator.domain.accelerators import Provisioning
    from orchestrator.domain.runs import Engine


class _List(click.ParamType[tuple[str, ...]]):
    """`a,b` -> ("a", "b"); an empty entry, as of an unset variable, is an error."""

    name = "A[,B...]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, ...]:
        if isinstance(value, tuple):
            return value
        parts = tuple(part.strip() for part in str(value).split(","))
        if not all(parts):
            self.fail(f"{value!r} has an empty entry", param, ctx)
        return parts


class _Accelerators(_List):
    """Names of accelerators, or of machines of one's own."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        return [CompletionItem(each) for each in completion.accelerators(incomplete)]


class _Ints(click.ParamType[tuple[int, ...]]):
    """`256,512` -> (256, 512), all positive and different."""

    name = "N[,M...]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        parts = [part.strip() for part in str(value).split(",")]
        if any(not part.isascii() or not part.isdigit() or int(part) == 0 for part in parts):
            self.fail(f"{value!r} is not a list of positive whole numbers like 256,512", param, ctx)
        numbers = tuple(int(part) for part in parts)
        if len(set(numbers)) != len(numbers):
            self.fail(f"{value!r} lists a number twice", param, ctx)
        return numbers


class _Batches(click.ParamType[tuple[int | None, ...]]):
    """`256,auto` -> (256, None): `auto` is the one that the device is fastest with."""

    name = "N|auto[,...]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int | None, ...]:
        if isinstance(value, tuple):
            return value
        parts = [part.strip() for part in str(value).split(",")]
        if parts.count("auto") > 1:
            self.fail(f"{value!r} lists auto twice", param, ctx)
        given = [part for part in parts if part != "auto"]
        numbers = iter(INTS.convert(",".join(given), param, ctx) if given else ())
        return tuple(None if part == "auto" else next(numbers) for part in parts)


class _Engines(click.ParamType["tuple[Engine, ...]"]):
    """`tensorflow,jax` -> both, in that order."""

    name = "ENGINE[,...]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[Engine, ...]:
        from orchestrator.domain.runs import Engine

        if isinstance(value, tuple):
            return value
        parts = [part.strip() for part in str(value).split(",")]
        known = [engine.value for engine in Engine]
        if unknown := [part for part in parts if part not in known]:
            self.fail(f"{unknown[0]!r} is not one of {', '.join(known)}", param, ctx)
        if len(set(parts)) != len(parts):
            self.fail(f"{value!r} lists an engine twice", param, ctx)
        return tuple(map(Engine, parts))


class _Date(click.DateTime):
    """A day as 2027-01-31; one that is written in another usual order is shown as it is to be written."""

    def __init__(self) -> None:
        super().__init__(["%Y-%m-%d"])

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        with suppress(click.BadParameter):
            return super().convert(value, param, ctx)
        year_last = re.fullmatch(r"(\d{1,2})[-./ ](\d{1,2})[-./ ](\d{4})", str(value).strip())
        first, second, year = map(int, year_last.groups()) if year_last else (0, 0, 0)
        could_be = []
        for day, month in ((first, second), (second, first)):  # in America the month comes first
            with suppress(ValueError):
                could_be.append(date(year, month, day).isoformat())
        return self.fail(
            f"{value!r} is not a date; write {' or '.join(sorted(set(could_be))) or 'it as 2027-01-31'}", param, ctx
        )


class _Decimal(click.ParamType[Decimal]):
    """A positive amount, exact."""

    name = "AMOUNT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Decimal:
        if isinstance(value, Decimal):
            return value
        try:
            amount = Decimal(str(value).removeprefix("$"))
        except InvalidOperation:
            amount = Decimal(-1)
        if not amount.is_finite() or amount < 0:
            self.fail(f"{value!r} is not an amount like 0.5", param, ctx)
        return amount


class _Count(click.ParamType[int]):
    """`60e9` -> 60,000,000,000: a positive whole number, however it is written."""

    name = "N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            count = Decimal(str(value).replace(",", "").replace("_", ""))
        except InvalidOperation:
            count = Decimal(0)
        if not count.is_finite() or not 1 <= count <= 10**15 or count != int(count):
            self.fail(f"{value!r} is not a positive whole number like 60000 or 60e9 (at most 1e15)", param, ctx)
        return int(count)


class WholeNumber(click.IntRange):
    """A whole number within bounds; an error says "integer", not "integer range"."""

    name = "integer"


class _BillingAccount(click.ParamType[str]):
    """Its id as the console shows it, or with Google's `billingAccounts/` before it."""

    name = "ID"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        account = str(value).strip().removeprefix("billingAccounts/").upper()
        if not re.fullmatch(r"[0-9A-Z]{6}(-[0-9A-Z]{6}){2}", account):
            self.fail(f"{value!r} is not the id of a billing account like 012345-6789AB-CDEF01", param, ctx)
        return account


LIST = _List()
ACCELERATORS = _Accelerators()
INTS = _Ints()
BATCHES = _Batches()
ENGINES = _Engines()
DATE = _Date()
DECIMAL = _Decimal()
BILLING_ACCOUNT = _BillingAccount()
COUNT = _Count()


def choose_project(_ctx: click.Context, _param: click.Parameter, name: str | None) -> str | None:
    """Make it the project of this process, and of those that it starts, instead of the configuration's."""
    if name is not None:
        import os

        from orchestrator.config import PROJECT_VARIABLE, check_project

        check_project(name, "--project")
        os.environ[PROJECT_VARIABLE] = name
    return name


def ask_for(ctx: click.Context, name: str, *, needed: bool = True) -> Any:
    """What a person at a terminal answers for an option that was not given; None for Enter where it is not `needed`.

    Raises click.MissingParameter where nobody can be asked.
    """
    import sys

    param = next(one for one in ctx.command.params if one.name == name)
    if not sys.stdin.isatty() or ctx.params.get("as_json"):
        raise click.MissingParameter(ctx=ctx, param=param)
    question = str(getattr(param, "help", name)).rstrip(".") + ("" if needed else " (Enter: none)")

    def read(text: str) -> Any:
        return param.type_cast_value(ctx, text) if text else None

    return click.prompt(question, err=True, default=None if needed else "", show_default=False, value_proc=read)


def chosen_project() -> str:
    """What a command that is suggested needs to mean the same project: `--project ID`, or nothing."""
    import os

    from orchestrator.config import PROJECT_VARIABLE

    named = os.environ.get(PROJECT_VARIABLE)
    return f"--project {named}" if named else ""


project_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--project",
    is_eager=True,  # what other parameters do depends on it
    expose_value=False,
    callback=choose_project,
    metavar="ID|local",
    help="A Google Cloud project, or the local cloud. Default: the configuration's.",
)

# Options of both `launch` and `estimate`.
accel_option = click.option(
    "--accel",
    "accelerators",
    type=ACCELERATORS,
    required=True,
    help="Types, e.g. v3-8,t4; or host:USER@ADDRESS.",
)
nodes_option = click.option(
    "--nodes",
    type=WholeNumber(1, 8),  # NODES_MAX, without the time that importing it takes
    default=1,
    show_default=True,
    help="VMs per run, each with the GPUs of --accel; t4 --nodes 2 is t4-n2.",
)
workload_option = click.option(
    "--workload",
    default="mnist-cnn",
    show_default=True,
    shell_complete=completion.workloads,
    help="What to train (`orchestrate workloads`), or your own .py or .keras file.",
)
epochs_option = click.option("--epochs", type=WholeNumber(1, 1_000_000), help="Default: the workload's own.")
image_size_option = click.option(
    "--image-size", type=WholeNumber(8, 4096), help="Side of photos and clips, in pixels. Default: the workload's."
)
sequence_length_option = click.option(
    "--sequence-length", type=WholeNumber(2, 2**20), help="Tokens of a sequence of text. Default: the workload's."
)
max_hours_option = click.option(
    "--max-hours", type=DECIMAL, help="Delete each VM after this many hours. Default: 1 (or the configuration)."
)
spot_option = click.option("--spot", is_flag=True, help="Spot VMs: cheaper, may be preempted.")
flex_start_option = click.option(
    "--flex-start", is_flag=True, help="Queue for TPU capacity; Google deletes the VM at the deadline."
)


def take_provisioning(typed: MutableMapping[str, Any]) -> Provisioning:
    """The terms by `--spot` and `--flex-start`; both are removed. Raises click's UsageError for both.

    One on the command line overrides the other in an experiment file.
    """
    from click.core import ParameterSource

    from orchestrator.domain.accelerators import Provisioning

    source = click.get_current_context().get_parameter_source
    is_typed = {name: source(name) is ParameterSource.COMMANDLINE for name in ("spot", "flex_start")}
    spot, flex_start = typed.pop("spot"), typed.pop("flex_start")
    if spot and flex_start and any(is_typed.values()):
        spot, flex_start = is_typed["spot"], is_typed["flex_start"]
    if spot and flex_start:
        raise click.UsageError("--spot and --flex-start are different terms: give one of them")
    if flex_start:
        return Provisioning.FLEX_START
    return Provisioning.SPOT if spot else Provisioning.ON_DEMAND


def with_defaults(typed: dict[str, Any], config: Config) -> dict[str, Any]:
    """The options, with hours and zones of the configuration where none were given."""
    hours = config.max_hours if typed["max_hours"] is None else typed["max_hours"]
    return {**typed, "max_hours": hours, "zones": typed["zones"] or config.zones}


zones_option = click.option(
    "--zone",
    "zones",
    type=LIST,
    default=(),
    help="Zones to try, in order. Default: the cheapest first; for launch, those with enough quota.",
)

# Options of `estimate` for what is not measured yet.
data_set_option = click.option(
    "--data", type=click.Path(path_type=Path), help="Folder of samples, an .npz or a text file, as for `launch`."
)
data_gib_option = click.option(
    "--data-gib", type=DECIMAL, help="Size of the prepared data set.  [default: the latest run's, else 1]"
)
batches_to_compile_option = click.option(
    "--batch-size",
    "batches",
    type=BATCHES,
    default=(),
    help="With --compile: global batches; auto: the largest that fits.  [default: the workload's]",
)

# Options of `estimate` for a data set of any size.
images_option = click.option(
    "--images", type=COUNT, help="Training samples: to extrapolate to (--from), or of an epoch (--compile)."
)
test_images_option = click.option(
    "--test-images", type=COUNT, help="With --from: test samples. Default: as many as were measured."
)
from_option = click.option(
    "--from",
    "sweep",
    multiple=True,
    metavar="EXPERIMENT|RUN|FILE",
    help="A measured sweep over data sizes; repeatable.",
)
beyond_option = click.option("--beyond", is_flag=True, help="With --from: also farther than the sweep supports.")
