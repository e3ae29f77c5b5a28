"""A TPU's counters: libtpu's monitoring library (`libtpu.sdk.tpumonitoring`), which asks the runtime that trains.

`get_metric(name).data()` is a list of texts, one a chip (libtpu 0.0.42.1, and
cloud.google.com/tpu/docs/tpu-monitoring-library, read 2026-11). tpu-info reads the same from a process of its own
(AI-Hypercomputer/cloud-accelerator-diagnostics). Without a TPU VM's metadata server the first call waits for minutes,
so nobody who has something else to do may make it. A chip has one process at a time, so whose work it is is known.
"""

from __future__ import annotations

import contextlib
from typing import Any

from trainer.device.looks import Clocks, DeviceLook, NoCounters, Window

SLACK_S = 5.0
"""So old its duty cycle may be: how long its sample lasts is published nowhere."""


class Libtpu:
    """The chips of this host. Raises NoCounters where the library has no duty cycle."""

    def __init__(self, library: Any, clocks: Clocks) -> None:
        self._library, self._clocks = library, clocks
        self._seen_s = clocks.monotonic_s()
        try:
            has_duty_cycle = "duty_cycle_pct" in library.list_supported_metrics()
        except Exception as error:  # of a compiled library
            raise NoCounters(f"libtpu's monitoring library does not answer ({error})") from error
        if not has_duty_cycle:
            raise NoCounters("libtpu's monitoring library has no duty_cycle_pct")
        self.source = "libtpu's monitoring library"

    def devices(self) -> tuple[DeviceLook, ...]:
        """Look at every chip now; none before a program runs there."""
        busy, held = self._numbers("duty_cycle_pct"), self._numbers("hbm_capacity_usage")
        throttled = self._numbers("tpu_throttle_score")
        began_s, self._seen_s = self._seen_s, self._clocks.monotonic_s()
        each_bytes = _by_chip(held, len(busy))
        return tuple(
            DeviceLook(
                name=f"TPU chip {place}",
                windows=(Window(began_s, self._seen_s, min(percent / 100, 1.0)),),
                slack_s=SLACK_S,
                own_bytes=int(each_bytes[place]) if each_bytes else None,
                throttles=("throttled",) if place < len(throttled) and throttled[place] > 0 else (),
            )
            for place, percent in enumerate(busy)
        )

    def _numbers(self, metric: str) -> list[float]:
        with contextlib.suppress(Exception):  # a runtime that has ended answers nothing; nosemgrep: swallowed-error
            return [float(text) for text in self._library.get_metric(metric).data()]
        return []


def _by_chip(values: list[float], chips: int) -> list[float]:
    """Sums for each chip: memory may be told for each core of it. Nothing where the numbers do not fit."""
    if not chips or len(values) % chips:
        return []
    each = len(values) // chips
    return [sum(values[place * each : (place + 1) * each]) for place in range(chips)] if each else []
