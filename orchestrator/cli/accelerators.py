"""`orchestrate accelerators`: what can be rented, where, at what price?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from orchestrator.cli import output

if TYPE_CHECKING:
    from orchestrator.cli.offers import Offer

COLUMNS = ("name", "title", "replicas", "GiB", "TFLOP/s", "cheapest zone", "zones", "USD/h", "spot")
FIGURES = ("replicas", "GiB", "TFLOP/s", "zones", "USD/h", "spot")


@click.command()
@click.option("--region", help="Only offers in this region, as us-central1.")
@click.option("--zone", help="Only offers in this zone, as us-central1-a.")
@click.option("--spot", is_flag=True, help="Only spot offers, the cheapest spot price first.")
@output.json_option
def accelerators(region: str | None, zone: str | None, spot: bool, as_json: bool) -> None:
    """List accelerator types with memory and peak of one chip, and the cheapest zone with the whole VM's price.

    \b
    Examples:
      orchestrate accelerators
      orchestrate accelerators --region us-central1 --spot
    """
    from orchestrator.cli.offers import catalog_offers

    found = catalog_offers(region=region, zone=zone, spot=spot)
    if as_json:
        output.print_json({"accelerators": [offer.to_json() for offer in found]})
        return
    table = output.table("", COLUMNS, FIGURES)
    for offer in found:
        table.add_row(*_cells(offer))
    output.print_table(table)
    dates = sorted({one.on_demand.as_of for offer in found for one in offer.zones})
    sources = sorted({name for offer in found for name in offer.sources})
    output.say(
        "GiB, TFLOP/s: memory and dense peak (TPU bf16, GPU fp16) of one chip or GPU; no USD/h: rented as spot only"
    )
    output.say(
        f"USD/h and spot: the whole VM with disk and address, as of {dates[0]} to {dates[-1]}: {'; '.join(sources)}"
    )


def _cells(offer: Offer) -> list[str]:
    item, best = offer.item, offer.zones[0]
    return [
        item.name,
        item.title.replace("NVIDIA ", ""),
        str(item.replicas),
        str(item.memory_gib),
        f"{item.peak_tflops:g}",
        best.zone,
        str(len(offer.zones)),
        "-" if item.spot_only else f"{best.on_demand.usd_per_hour:.3f}",
        "-" if best.spot is None else f"{best.spot.usd_per_hour:.3f}",
    ]
