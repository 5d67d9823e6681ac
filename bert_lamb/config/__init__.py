"""Typed, frozen configuration of a pretraining run, checked at the door.

Files under configs/ return an `ml_collections.ConfigDict`; `from_dict` turns it into the
dataclasses of `sections` and `optimization`. Whatever is wrong with it (an unknown key, a wrong
type, an impossible number) raises `ConfigError` with the key, the value and what was expected,
before anything is compiled. Each part of the program receives only the section it needs, never
the whole.
"""

from bert_lamb.config.checks import ConfigError
from bert_lamb.config.conversion import differences, from_dict, to_dict
from bert_lamb.config.optimization import OptimizerConfig, PhaseConfig, TrainingPhase
from bert_lamb.config.sections import (
    PRESETS,
    CheckpointConfig,
    DataConfig,
    EvaluationConfig,
    LoggingConfig,
    MaskingConfig,
    ModelConfig,
    ParallelConfig,
    PretrainConfig,
    RunConfig,
)

__all__ = [
    "PRESETS",
    "CheckpointConfig",
    "ConfigError",
    "DataConfig",
    "EvaluationConfig",
    "LoggingConfig",
    "MaskingConfig",
    "ModelConfig",
    "OptimizerConfig",
    "ParallelConfig",
    "PhaseConfig",
    "PretrainConfig",
    "RunConfig",
    "TrainingPhase",
    "differences",
    "from_dict",
    "to_dict",
]
