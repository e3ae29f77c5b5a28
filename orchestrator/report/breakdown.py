"""Where did a run's time go, each second once? From renting the VM to its end, the trainer's own time among it."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.domain.runs import Stage
from orchestrator.report.run_metrics import Measured


@dataclass(frozen=True)
class Part:
    """A part of the time and how it is drawn: what is no training is grey or hatched."""

    name: str
    colour: str
    hatch: str = ""


PARTS = (
    Part("provision", "#8A8A8A", "///"),
    Part("prepare", "#C4C4C4", "..."),
    Part("start-up, data", "#56B4E9"),
    Part("compile", "#D55E00"),
    Part("first epoch", "#E69F00"),
    Part("later epochs", "#0072B2"),
    Part("evaluation", "#009E73"),
    Part("other training", "#CC79A7"),
    Part("waiting", "#FFFFFF"),
    Part("collect, teardown", "#8A8A8A", "\\\\\\"),
)


def breakdown(run: Measured) -> tuple[float, ...]:
    """Seconds for each of PARTS.

    `other training` is what is left of the trainer's total: inference, checkpoints, bookkeeping; `waiting` what is left
    of the train stage: starting the trainer, noticing its end, and what an interrupted attempt lost.
    """
    stage_s = {each.stage: each.seconds for each in run.stages}
    start_s = (run.imports_s or 0.0) + (run.setup_s or 0.0) + (run.data_load_s or 0.0)
    compile_s = run.compile_s or 0.0
    first_s = run.first_epoch_s or 0.0
    later_s = sum(point.wall_s for point in run.curve if point.epoch > 1)
    evaluation_s = sum(point.eval_s for point in run.curve)
    known_s = start_s + compile_s + first_s + later_s + evaluation_s
    return (
        stage_s.get(Stage.PROVISION, 0.0),
        stage_s.get(Stage.PREPARE, 0.0),
        start_s,
        compile_s,
        first_s,
        later_s,
        evaluation_s,
        max(0.0, run.total_s - known_s),
        max(0.0, stage_s.get(Stage.TRAIN, 0.0) - max(run.total_s, known_s)),
        stage_s.get(Stage.COLLECT, 0.0) + stage_s.get(Stage.TEARDOWN, 0.0),
    )
