"""Runs of any task on disk: whose they are, and which model they hold."""

from typing import Any

from etils import epath

from bert_lamb import model
from bert_lamb.config import ConfigError, PretrainConfig, from_dict
from bert_lamb.finetuning.config import FinetuneConfig, GlueConfig, SquadConfig
from bert_lamb.glue.tasks import Task, custom_task, find_task
from bert_lamb.model import Objective
from bert_lamb.training.preflight import read_config

# A section that only runs of one kind have.
_KINDS: dict[str, Any] = {"masking": PretrainConfig, "answers": SquadConfig, "task": GlueConfig}


def split_checkpoint(path: str) -> tuple[epath.Path, int | None]:
    """Splits WORKDIR/checkpoints/STEP; the step of a WORKDIR is None, which means the newest."""
    folder = epath.Path(path)
    if folder.name.isdigit() and folder.parent.name == "checkpoints":
        return folder.parent.parent, int(folder.name)
    return folder, None


def read_run(workdir: epath.PathLike) -> PretrainConfig | SquadConfig | GlueConfig:
    """Reads the configuration of a run of whatever kind.

    Raises:
        ConfigError: if `workdir` holds no run, or that of another version.
    """
    values = read_config(workdir)
    kind = next((cls for key, cls in _KINDS.items() if key in values), None)
    if kind is None:
        raise ConfigError(f"{workdir}/config.json: not the configuration of a run of this version")
    try:
        return from_dict(kind, values)
    except ConfigError as error:
        raise ConfigError(f"{workdir}/config.json: {error}; put the original file back") from None


def objective_of(config: PretrainConfig | FinetuneConfig) -> Objective:
    """Returns the model and loss of a run whose configuration is resolved."""
    if isinstance(config, PretrainConfig):
        return model.pretraining(config.model)
    if isinstance(config, GlueConfig):
        task = task_of(config)
        if task.regression:
            return model.regression(config.model)
        return model.classification(config.model, task.outputs)
    return model.question_answering(config.model)


def task_of(config: GlueConfig) -> Task:
    """Returns the task of GLUE, or of the user's own, that a configuration names.

    Raises:
        DataError: for an unknown task without columns, or columns that do not go together.
    """
    if not config.text_columns:
        return find_task(config.task)
    return custom_task(
        config.text_columns,
        config.label_column,
        name=config.task,
        labels=config.labels or None,
        regression=config.regression,
        metrics=config.metrics or None,
    )
