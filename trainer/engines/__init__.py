"""The frameworks that train, one folder each; the only place that picks one."""

from __future__ import annotations

from trainer.engines.base import Engine, OpenEngine

__all__ = ["Engine", "load_engine"]


def load_engine() -> OpenEngine:
    """Import the framework, which takes seconds, and return what opens its devices."""
    from trainer.engines.tensorflow.engine import TensorFlowEngine

    return TensorFlowEngine
