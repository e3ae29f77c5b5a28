"""How a figure of a run is declared: its section, and what it is computed from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, model_serializer

from orchestrator.domain.accelerators import known_accelerator
from orchestrator.domain.steady_epochs import SteadySpan, steady_span
from orchestrator.report.sources import Source
from trainer.record.record import Record
from trainer.record.schema import Device, Epoch, Inference, Timings


@dataclass(frozen=True)
class Facts:
    """What the figures of a run are computed from. `name` tells it from the others."""

    source: Source
    name: str

    @property
    def record(self) -> Record:
        return self.source.record

    @property
    def timings(self) -> Timings:
        return self.source.record.timings

    @property
    def device(self) -> Device | None:
        return self.source.record.device

    @property
    def inference(self) -> Inference | None:
        return self.source.record.inference

    @cached_property
    def chips(self) -> int | None:
        known = known_accelerator(self.source.ran_on)
        return known.chips if known else self.device.count if self.device else None

    @cached_property
    def marked(self) -> tuple[Epoch, ...]:
        """The epochs that the record calls steady."""
        return tuple(epoch for epoch in self.record.epochs if epoch.steady)

    @cached_property
    def span(self) -> SteadySpan:
        """Places among those of the ones that still drift, shift or lie far from the others."""
        return steady_span([epoch.wall_s for epoch in self.marked])

    @cached_property
    def steady(self) -> tuple[Epoch, ...]:
        """The epochs that figures come from."""
        return self.marked[self.span.start :]

    @cached_property
    def steady_epoch_s(self) -> float | None:
        return median(epoch.wall_s for epoch in self.steady) if self.steady else None

    @property
    def batch_searched(self) -> bool:
        return self.record.parameters.batch_search is not None

    @property
    def compared_epoch_s(self) -> float | None:
        """The steady epoch; of a run that searched its batch, for all samples: batches leave out different numbers."""
        samples = self.record.parameters.train_samples
        if self.steady_epoch_s is None or not self.batch_searched or not samples:
            return self.steady_epoch_s
        return self.steady_epoch_s * samples / self.steady[-1].samples

    @property
    def epochs(self) -> tuple[Epoch, ...]:
        """The steady ones; all of them, when there is no steady one."""
        return self.steady or self.record.epochs

    @property
    def evaluations_s(self) -> list[float]:
        return [epoch.eval_s for epoch in self.epochs if epoch.eval_s is not None]

    @property
    def samples_per_s(self) -> float | None:
        return self.steady[-1].samples / self.steady_epoch_s if self.steady_epoch_s else None


@dataclass(frozen=True)
class From:
    """How a figure is computed."""

    value: Callable[[Facts], Any]


class Section(BaseModel):
    """Figures in seconds, bytes and USD; None where the run did not measure it. As JSON, sections in it are flat."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def of(cls, facts: Facts) -> Self:
        """Each figure by its From, each section in it by the same facts; the others keep their defaults."""
        values: dict[str, Any] = {}
        for name, field in cls.model_fields.items():
            if isinstance(field.annotation, type) and issubclass(field.annotation, Section):
                values[name] = field.annotation.of(facts)
            for how in field.metadata:
                if isinstance(how, From):
                    values[name] = how.value(facts)
        return cls(**values)

    @model_serializer(mode="wrap")
    def _flat(self, dump: Callable[[Section], dict[str, Any]]) -> dict[str, Any]:
        flat: dict[str, Any] = {}
        for name, value in dump(self).items():
            flat |= value if isinstance(getattr(self, name), Section) else {name: value}
        return flat
