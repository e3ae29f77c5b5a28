"""The Cloud Billing Catalog API: Google's public price list, its SKUs made from this cloud's prices.

Machines are taken apart into cores, memory, GPUs and local SSD as Google lists them, so that whoever adds them up again
gets the price that is billed here. Between them stand the SKUs that are easily mistaken for them: reservations,
commitments, DWS, other GPUs, licences.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

from starlette.requests import Request
from starlette.responses import Response

from infra.localcloud.hardware import machine_shape
from infra.localcloud.http.errors import not_found
from infra.localcloud.http.messages import reply
from infra.localcloud.http.routes import Service, page, routes
from infra.localcloud.metering.price_list import Price, PriceList
from infra.localcloud.store import Document

SERVICES = {
    "6F81-5844-456A": "Compute Engine",
    "E000-3F24-B8AA": "Cloud TPU",
    "95FF-2EF5-5EA1": "Cloud Storage",
}
_COMPUTE, _TPU, _STORAGE = SERVICES
_PAGE_MAX = 5000
_NANO = Decimal("1e-9")
_SSD_GIB_MONTH = Decimal("0.08")
_HOURS_PER_MONTH = 730
_SSD_GIB_PER_GPU = {"a2-ultragpu": 375, "a3-highgpu": 750}
_FAMILY = {"n1": "N1 Predefined", "g2": "G2", "a2": "A2", "a3": "A3"}
_GPU_TEXT = {
    "nvidia-tesla-t4": "Nvidia Tesla T4 GPU", "nvidia-tesla-p100": "Nvidia Tesla P100 GPU",
    "nvidia-tesla-v100": "Nvidia Tesla V100 GPU", "nvidia-l4": "Nvidia L4 GPU",
    "nvidia-tesla-a100": "Nvidia Tesla A100 GPU", "nvidia-a100-80gb": "Nvidia Tesla A100 80GB GPU",
    "nvidia-h100-80gb": "Nvidia H100 80GB GPU",
}  # fmt: skip
_NEAR_GPUS = ("Nvidia H100 80GB Mega GPU", "Nvidia H100 80GB Plus GPU", "RTX 6000 96GB", "A4 Nvidia B200 (1 gpu slice)")


@dataclass(frozen=True)
class _Sku:
    service: str
    description: str
    group: str
    usage: str
    region: str
    unit: str
    tiers: tuple[Decimal, ...]


class BillingCatalogService(Service):
    """services.list and services.skus.list; read-only."""

    hosts = ("cloudbilling.googleapis.com",)

    def __init__(self, prices: PriceList) -> None:
        self._prices = prices
        self._skus: dict[str, list[Document]] = {}
        table = [("GET ", "services.list", self._list_services), ("GET /{service}/skus", "skus.list", self._list_skus)]
        self.routes = routes("cloudbilling", table, lambda _: None, "/v1/services")

    async def _list_services(self, request: Request) -> Response:
        from google.cloud.billing_v1 import types  # slow to import, and few ask

        found = [
            {"name": f"services/{number}", "serviceId": number, "displayName": title}
            for number, title in SERVICES.items()
        ]
        return reply(types.ListServicesResponse, page(request, "services", found, _PAGE_MAX))

    async def _list_skus(self, request: Request) -> Response:
        from google.cloud.billing_v1 import types

        service = request.path_params["service"]
        if service not in SERVICES:
            raise not_found(f"services/{service}")
        if not self._skus:  # made when first asked for: nobody else waits for thousands of them
            for sku in _all_skus(self._prices):
                self._skus.setdefault(sku.service, []).append(_document(sku))
        return reply(types.ListSkusResponse, page(request, "skus", self._skus[service], _PAGE_MAX))


def _document(sku: _Sku) -> Document:
    sku_id = hashlib.sha256(repr(sku).encode()).hexdigest()[:12].upper()
    rates = [
        {
            "startUsageAmount": float(0 if number == 0 else 5),
            "unitPrice": {"currencyCode": "USD", "units": str(int(usd)), "nanos": int((usd - int(usd)) / _NANO)},
        }
        for number, usd in enumerate(sku.tiers)
    ]
    return {
        "name": f"services/{sku.service}/skus/{sku_id}",
        "skuId": sku_id,
        "description": sku.description,
        "category": {
            "serviceDisplayName": SERVICES[sku.service],
            "resourceFamily": "Storage" if sku.unit == "GiBy.mo" else "Compute",
            "resourceGroup": sku.group,
            "usageType": sku.usage,
        },
        "serviceRegions": [sku.region],
        "pricingInfo": [{"pricingExpression": {"usageUnit": sku.unit, "displayQuantity": 1.0, "tieredRates": rates}}],
        "serviceProviderName": "Google",
    }


def _all_skus(prices: PriceList) -> Iterator[_Sku]:
    by_region: dict[str, dict[tuple[str, str], Price]] = {}
    for row in prices.rows:
        by_region.setdefault(row.region, {})[row.kind, row.name] = row
    for region, rows in by_region.items():
        made = [*_tpus(region, rows), *_machines(rows), *_rest(region, rows)]
        yield from made
        for sku in made:
            yield from _mistakable(sku)


def _on_both_terms(
    row: Price, service: str, group: str, texts: tuple[str, str], count: int = 1, usage: str = "Preemptible"
) -> Iterator[_Sku]:
    """The SKU on demand, and as spot where it has a price; `count` of them are in the row's price."""
    for text, usd, kind in ((texts[0], row.on_demand_usd, "OnDemand"), (texts[1], row.spot_usd, usage)):
        if usd is not None:
            yield _Sku(service, text, group, kind, row.region, "h", (usd / count,))


def _tpus(region: str, rows: dict[tuple[str, str], Price]) -> Iterator[_Sku]:
    for name, stem in (("v5litepod-1", "TpuV5e"), ("v6e-1", "TpuV6e")):
        if ("tpu", name) in rows:
            texts = (f"{stem} running in {region}", f"{stem} attached to Spot Preemptible VMs running in {region}")
            yield from _on_both_terms(rows["tpu", name], _COMPUTE, "TPU", texts)
            flex_start_usd = rows["tpu", name].flex_start.on_demand_usd
            if flex_start_usd is not None:
                text = f"DWS Defined Duration {stem.removeprefix('Tpu')} running in {region}"
                yield _Sku(_COMPUTE, text, "TPU", "OnDemand", region, "h", (flex_start_usd,))
    for name, pod in (("v2-8", ""), ("v3-8", ""), ("v4-8", " Pod")):
        if ("tpu", name) in rows:
            stem = f"Tpu-{name[:2]}"
            texts = (f"{stem}{pod} accelerator running in {region}", f"{stem} Preemptible{pod} accelerator in {region}")
            yield from _on_both_terms(rows["tpu", name], _TPU, "TPU", texts, usage="OnDemand")


def _machines(rows: dict[tuple[str, str], Price]) -> Iterator[_Sku]:
    for (kind, name), row in rows.items():
        if kind == "gpu":
            yield from _gpu(row, name, row.on_demand_usd, row.spot_usd)
    for prefix in _FAMILY:
        family = {name: row for (kind, name), row in rows.items() if kind == "machine" and name.startswith(prefix)}
        yield from _family(prefix, family)


def _family(prefix: str, rows: dict[str, Price]) -> Iterator[_Sku]:
    """Cores and memory at one price for the family in the region; what is left of a machine's price is its GPUs'."""
    if not rows:
        return
    smallest = min(rows, key=lambda name: _shape(name)[0])
    left: dict[str, list[Decimal | None]] = {}
    for spot in (False, True):
        usd = rows[smallest].usd(spot) if not spot else rows[smallest].spot_usd
        if usd is None:
            continue
        core, ram = _core_and_ram(prefix, rows, smallest, spot)
        place = f"Instance {{}} running in {rows[smallest].region}"
        text, usage = (f"Spot Preemptible {_FAMILY[prefix]}", "Preemptible") if spot else (_FAMILY[prefix], "OnDemand")
        region = rows[smallest].region
        yield _Sku(_COMPUTE, f"{text} {place.format('Core')}", "CPU", usage, region, "h", (core,))
        yield _Sku(_COMPUTE, f"{text} {place.format('Ram')}", "RAM", usage, region, "GiBy.h", (ram,))
        yield from _ssd(rows, region, spot)
        for name, row in sorted(rows.items(), key=lambda pair: _shape(pair[0])[0]):
            cores, gib, gpu, gpus, ssd_gib = _shape(name)
            whole = row.spot_usd if spot else row.on_demand_usd
            if gpu and whole is not None and left.setdefault(gpu, [None, None])[spot] is None:
                rest = whole - core * cores - ram * gib - ssd_gib * _SSD_GIB_MONTH / _HOURS_PER_MONTH
                left[gpu][spot] = (rest / gpus).quantize(_NANO)
    for gpu, (on_demand, spot_usd) in left.items():
        yield from _gpu(rows[smallest], gpu, on_demand, spot_usd)


def _core_and_ram(prefix: str, rows: dict[str, Price], smallest: str, spot: bool) -> tuple[Decimal, Decimal]:
    """USD per core-hour and GiB-hour. Two machines with the same GPU tell their sum; how it is parted is arbitrary."""
    whole = rows[smallest].spot_usd if spot else rows[smallest].on_demand_usd
    assert whole is not None, "its caller has looked"
    cores, gib, gpu, _, _ = _shape(smallest)
    if not gpu:
        nanos = int(whole / _NANO)
        ram = next(nano for nano in range(nanos // 60, nanos // 60 + cores) if (nanos - nano * gib) % cores == 0)
        return (nanos - ram * gib) // cores * _NANO, ram * _NANO
    twin = rows.get(f"{prefix}-standard-{2 * cores}")
    twice = (twin.spot_usd if spot else twin.on_demand_usd) if twin else None
    both = (twice - whole) if twice is not None else whole / 5
    return (both / 2 / cores).quantize(_NANO), (both / 2 / gib).quantize(_NANO)


def _shape(machine_type: str) -> tuple[int, int, str, int, int]:
    """(cores, GiB, GPU, GPUs, GiB of local SSD)."""
    shape = machine_shape(machine_type)
    assert shape is not None, f"{machine_type} is in the price list, so its family is known"
    ssd_gib = _SSD_GIB_PER_GPU.get(machine_type.rsplit("-", 1)[0], 0) * shape.gpu_count
    return shape.cpus, shape.memory_mb // 1024, shape.gpu, shape.gpu_count, ssd_gib


def _ssd(rows: dict[str, Price], region: str, spot: bool) -> Iterator[_Sku]:
    if any(_shape(name)[4] for name in rows):
        text, usage = (" attached to Spot Preemptible VMs", "Preemptible") if spot else ("", "OnDemand")
        yield _Sku(
            _COMPUTE, f"SSD backed Local Storage{text} in {region}", "LocalSSD", usage, region, "GiBy.mo",
            (_SSD_GIB_MONTH,),
        )  # fmt: skip


def _gpu(row: Price, name: str, on_demand: Decimal | None, spot: Decimal | None) -> Iterator[_Sku]:
    text = _GPU_TEXT.get(name)
    priced = Price("gpu", name, row.region, row.zones, "hour", on_demand, spot)
    if text:
        texts = (f"{text} running in {row.region}", f"{text} attached to Spot Preemptible VMs running in {row.region}")
        yield from _on_both_terms(priced, _COMPUTE, "GPU", texts)


def _rest(region: str, rows: dict[tuple[str, str], Price]) -> Iterator[_Sku]:
    for key, service, text, group, unit, free in (
        (("disk", "pd-balanced"), _COMPUTE, "Balanced PD Capacity", "SSD", "GiBy.mo", False),
        (("storage", "standard"), _STORAGE, "Standard Storage", "RegionalStorage", "GiBy.mo", True),
        (("ipv4", "in-use"), _COMPUTE, "External IP Charge on a Standard VM", "ExternalIp", "h", True),
    ):
        usd = rows[key].on_demand_usd if key in rows else None
        if usd is not None:
            place = f" {region}" if service == _STORAGE else f" in {region}"
            tiers = (Decimal(0), usd) if free else (usd,)
            yield _Sku(service, text + place, group, "OnDemand", region, unit, tiers)


def _mistakable(sku: _Sku) -> Iterator[_Sku]:
    """SKUs that hold the same words and mean another price."""

    def other(description: str, usage: str = "OnDemand") -> _Sku:
        cheaper = tuple((usd * Decimal("0.6")).quantize(_NANO) for usd in sku.tiers)
        return _Sku(sku.service, description, sku.group, usage, sku.region, sku.unit, cheaper)

    if sku.usage == "Preemptible" or "Preemptible" in sku.description:
        return
    text, region = sku.description, sku.region
    yield other(f"Commitment v1: {text} for 1 Year", "Commit1Yr")
    yield other(f"Reserved {text} in Calendar Mode")
    if sku.group == "TPU":
        yield other(f"Capacity Optimized {text}")
        if "Pod" not in text and sku.service == _TPU:
            yield other(f"{text.split()[0]} Pod accelerator running in {region}")
    elif sku.group == "GPU":
        model = text.removesuffix(f" running in {region}")
        yield other(f"DWS Defined Duration {text}")
        yield other(f"{model} Virtual Workstation (vws) Licensing Fee running in {region}")
        for near in _NEAR_GPUS:
            yield other(f"{near} running in {region}")
    elif sku.group in ("CPU", "RAM"):
        yield other(text.replace("Instance", "Custom Instance"))
        yield other(text.replace("Instance", "Sole Tenancy Instance"))
        yield other(f"{text.split(' Instance')[0]} Sole Tenancy Premium for {text}")
    elif sku.service == _STORAGE:
        yield other(f"Standard Storage {region} Multi-region")
        yield other(f"Standard Storage {region} Dual-region")
    elif sku.group == "SSD":
        yield other(text.replace("Balanced PD", "Regional Balanced PD"))
        yield other(text.replace("Balanced", "Storage"))
