"""`orchestrate estimate`: the cost of a launch for each accelerator, before anything exists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from orchestrator.cli import options, output


@click.command()
@click.option("--accel", "accelerators", type=options.LIST, default=(), help="Accelerator types, e.g. v3-8,t4.")
@options.nodes_option
@click.option("--workload", help="What to train (`orchestrate workloads`). Default: mnist-cnn, or that of --from.")
@click.option("--engine", type=click.Choice(("tensorflow", "jax")), help="What Keras runs on.  [default: tensorflow]")
@options.epochs_option
@options.max_hours_option
@options.spot_option
@options.flex_start_option
@options.zones_option
@options.data_set_option
@options.data_gib_option
@options.images_option
@options.test_images_option
@options.from_option
@options.beyond_option
@click.option("--compile", "compiles", is_flag=True, help="Ask the TPU compiler: does it fit, how fast at best?")
@options.batches_to_compile_option
@options.image_size_option
@options.sequence_length_option
@options.project_option
@output.json_option
def estimate(sweep: Sequence[str], beyond: bool, as_json: bool, **asked: Any) -> None:
    """Estimate cost and time before renting.

    Shows worst case and expected cost of one run on each accelerator, side by side. Contacts no cloud, creates nothing.
    With --from: time and cost for a data set of any size, with interval, from a measured sweep over data sizes.
    With --data: for that data set, converted here as a launch would; its samples and shapes are used.
    With --compile: Google's TPU compiler says here, without a TPU, whether the training step fits, and its best speed.

    \b
    Examples:
      orchestrate estimate --accel v3-8,t4 --workload mnist-cnn --max-hours 1
      orchestrate estimate --accel v5litepod-4,l4,a100-40 --epochs 20 --spot --json
      orchestrate estimate --accel v6e-4 --workload ./my_model.py --data ./arrays.npz --compile
      orchestrate estimate --accel v3-8,v6e-4 --workload resnet50 --batch-size 256,auto --compile
      orchestrate estimate --images 60e9 --test-images 10e9 --from e-7k2m9x --beyond
    """
    asked["provisioning"] = options.take_provisioning(asked)
    compiles, batches = asked.pop("compiles"), asked.pop("batches")
    sizes = {name: size for name in ("image_size", "sequence_length") if (size := asked[name]) is not None}
    extrapolates = not compiles and bool(sweep or asked["images"] or asked["test_images"])
    given = any(asked[name] is not None for name in ("max_hours", "data", "data_gib", "image_size", "sequence_length"))
    by_runs = asked["engine"] or asked["nodes"] > 1
    conflicts = {
        "--batch-size needs --compile": batches and not compiles,
        "--image-size and --sequence-length need --compile or --data": sizes and not compiles and asked["data"] is None,
        "--data-gib cannot be used with --data, whose size is known": asked["data"] and asked["data_gib"] is not None,
        "--compile cannot be used with --from and --test-images": compiles and (sweep or asked["test_images"]),
        "--engine and --nodes cannot be used with --from, whose runs have theirs": sweep and by_runs,
        "--max-hours, --data and --data-gib cannot be used with --from": extrapolates and given,
        "--beyond needs --from": beyond and not sweep,
        "Missing option '--accel'.": not extrapolates and not asked["accelerators"],
    }
    for conflict in (words for words, is_so in conflicts.items() if is_so):
        raise click.UsageError(conflict)
    from orchestrator.cli.views.compiled import Steps
    from orchestrator.cli.views.estimate import estimate_and_show

    steps = Steps(asked["engine"] or "tensorflow", batches, sizes) if compiles else None
    with output.opened(as_json=as_json) as project:
        asked = options.with_defaults(asked, project.config)
        if extrapolates:
            from orchestrator.cli.views.extrapolation import extrapolate_and_show

            extrapolate_and_show(project, sweep, asked, beyond=beyond, as_json=as_json)
        else:
            estimate_and_show(project, asked, steps, as_json=as_json)
