"""Two chips that are always busy for three quarters of their time."""

from __future__ import annotations

from types import SimpleNamespace

_METRICS = {"duty_cycle_pct": ["75.0", "75.00"], "hbm_capacity_usage": ["1024", "1024", "2048", "2048"]}
tpumonitoring = SimpleNamespace(
    list_supported_metrics=lambda: list(_METRICS),
    get_metric=lambda name: SimpleNamespace(data=lambda: _METRICS[name], description=lambda: name),
)
