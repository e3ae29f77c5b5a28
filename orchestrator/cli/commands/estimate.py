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
@click.option("--compile", "compiles", is_flag=True, help="Ask the TPU compiler: does it fit, how fast at best?")
@options.batches_to_compile_option
@options.image_size_option
@options.sequence_length_option
@options.project_option
@output.json_option
def estimate(sweep: Sequence[str], as_json: bool, **asked: Any) -> None:
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
      orchestrate estimate --images 60e9 --test-images 10e9 --from e-7k2m9x
    """
    asked["provisioning"] = options.take_provisioning(asked)
    compiles, batches = asked.pop("compiles"), asked.pop("batches")
    sizes = {name: size for name in ("image_size", "sequence_length") if (size := asked[name]) is not None}
    if batches and not compiles:
        raise click.UsageError("--batch-size needs --compile")
    if sizes and not compiles and asked["data"] is None:
        raise click.UsageError("--image-size and --sequence-length need --compile or --data")
    if asked["data"] is not None and asked["data_gib"] is not None:
        raise click.UsageError("--data-gib cannot be used with --data, whose size is known")
    if compiles and (sweep or asked["test_images"]):
        raise click.UsageError("--compile cannot be used with --from and --test-images")
    if sweep and (asked["engine"] or asked["nodes"] > 1):
        raise click.UsageError("--engine and --nodes cannot be used with --from, whose runs have theirs")
    if not compiles and (sweep or asked["images"] or asked["test_images"]):
        refused = {name: asked.pop(name) for name in ("data", "data_gib", "image_size", "sequence_length")}
        if asked["max_hours"] is not None or any(value is not None for value in refused.values()):
            raise click.UsageError("--max-hours, --data and --data-gib cannot be used with --from")
        from orchestrator.cli.views.extrapolation import extrapolate_and_show

        with output.opened(as_json=as_json) as project:
            extrapolate_and_show(project, sweep, options.with_defaults(asked, project.config), as_json=as_json)
        return
    if not asked["accelerators"]:
        raise click.UsageError("Missing option '--accel'.")
    from orchestrator.cli.views.compiled import Steps
    from orchestrator.cli.views.estimate import estimate_and_show

    steps = Steps(asked["engine"] or "tensorflow", batches, sizes) if compiles else None
    with output.opened(as_json=as_json) as project:
        estimate_and_show(project, options.with_defaults(asked, project.config), steps, as_json=as_json)
