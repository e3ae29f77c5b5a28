"""Why a figure of a record is absent, where the run itself says nothing else."""

from __future__ import annotations

NOT_KNOWN = {
    "running": "the run has not come so far",
    "failed": "the run failed before it was known",
    "interrupted": "the run was interrupted before it was known",
    "succeeded": "not measured",
}
"""Why a figure is absent that no other reason is known of, by the run's status."""
_ONE_CALL = "TensorFlow traces and compiles in one call, which does not tell them apart"
WHY_MISSING = {
    "code": "the workload is one of the trainer's own",
    "ended_at": "the run is still running",
    "software.tensorflow": "TensorFlow did not train, or is not installed",
    "software.jax": "JAX did not train",
    "software.keras": "Keras is not installed",
    "software.numpy": "NumPy is not installed",
    "parameters.batch_search": "nothing was searched: the batch was given",
    "parameters.batch_search.tries.step_s": "this batch did not fit into the memory",
    "software.cuda": "only where a GPU trains",
    "software.cudnn": "only where a GPU trains",
    "software.driver": "only where a GPU trains",
    "software.libtpu": "only where a TPU trains",
    "parameters.mantissa_bits": "measured in warm-up",
    "data.chance_accuracy": "a regression has no classes to guess",
    "timings.steady_epoch_s": "there is no steady epoch: the first after a start is none",
    "timings.functions.lower_s": _ONE_CALL,
    "timings.functions.xla_compile_s": _ONE_CALL,
    "timings.accounted.step_mean_s": "no step has been trained",
    "parts.start_overhead_s": "no step has been trained yet",
    "parts.kept_s": "no part has resumed from this one",
    "parts.resumed_epoch": "not resumed",
    "parts.resumed_step": "not resumed",
    "epochs.test_accuracy": "a regression has no accuracy",
    "epochs.test_metrics.value": "it is not a finite number",
    "epochs.cpu_wait_s": "this operating system does not report it",
    "epochs.cpu_steal_s": "this operating system does not report it",
    "memory.device_peak_bytes": "measured at the end of a run",
    "replica_check": "made in warm-up",
    "compute.flops_per_sample": "counted when training is compiled",
}
"""By the figure's name."""
