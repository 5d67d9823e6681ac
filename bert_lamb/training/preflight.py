"""Everything that can be found wrong with a run before the first compile."""

import hashlib
import json
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
from etils import epath

import bert_lamb
from bert_lamb.config import (
    ConfigError,
    RunConfig,
    TrainingPhase,
    differences,
    from_dict,
    to_dict,
)
from bert_lamb.data.tokenization import TOKENIZER_FILES
from bert_lamb.parallel.hosts import gather_texts, is_first, wait_for_all

# Sections that a resumed run may differ in: none changes a parameter, beyond rounding, while the
# records are whole.
FREE_SECTIONS = ("data", "parallel", "checkpoint", "evaluation", "logging")
_RESTORE = "put the file back (each checkpoint's progress holds a copy), or give a new --workdir"


def micro_batches(phase: TrainingPhase, devices: int) -> int:
    """Returns into how many parts each device cuts its rows of a batch.

    The fewest for which a part has at most `max_rows_per_device` rows.

    Raises:
        ConfigError: if the rows cannot be split evenly over the devices.
    """
    if phase.global_batch % devices:
        raise ConfigError(
            f"global_batch = {phase.global_batch}: expected a multiple of the {devices} devices"
        )
    rows = phase.global_batch // devices
    limit = phase.max_rows_per_device or rows
    return next(
        parts for parts in range(1, rows + 1) if rows % parts == 0 and rows // parts <= limit
    )


def check_devices(config: RunConfig, devices: int) -> None:
    """Checks that every batch can be split over the devices.

    Raises:
        ConfigError: naming the key and both numbers.
    """
    for i, phase in enumerate(config.phases):
        try:
            micro_batches(phase, devices)
        except ConfigError as error:
            raise ConfigError(f"config.phases[{i}].{error}") from None
    if config.evaluation.batch % devices:
        raise ConfigError(
            f"config.evaluation.batch = {config.evaluation.batch}: expected a multiple of the "
            f"{devices} devices"
        )


def compare_hosts(config: Any, sources: Mapping[str, str]) -> None:
    """Checks that all hosts run the same code with the same configuration and sources.

    Raises:
        ConfigError: naming the host that differs from host 0, and in what.
        HostsError: if a host does not answer.
    """
    facts = {
        "config": to_dict(config),
        "version": bert_lamb.__version__,
        "code": _code_digest(),
        "records": dict(sources),
    }
    hosts = [json.loads(text) for text in gather_texts("run", json.dumps(facts))]
    for host, other in enumerate(hosts):
        if differ := differences(hosts[0], other, "run"):
            raise ConfigError(
                f"host {host} does not run what host 0 runs (host 0 -> host {host}): "
                + "; ".join(line.removeprefix("run.") for line in differ[:10])
                + "; install the same package and give every host the same command"
            )


def _code_digest() -> str:
    digest = hashlib.sha256()
    root = Path(bert_lamb.__file__).parent
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def claim_workdir(
    workdir: epath.PathLike, config: Any, write_tokenizer: Callable[[epath.Path], None]
) -> None:
    """Makes the working directory this run's: writes config.json and the tokenizer into it.

    A run that has saved nothing yet may still change its configuration. Host 0 writes, all look.

    Args:
        workdir: of the run.
        config: a dataclass of the run, resolved.
        write_tokenizer: writes the tokenizer's files into a folder.

    Raises:
        ConfigError: if the directory belongs to a run with another configuration, whose
            differences the message lists; or if the hosts do not all see the same directory.
    """
    workdir = epath.Path(workdir)
    check_workdir(workdir, config)
    wait_for_all("workdir")  # all have looked before one writes
    if is_first():
        _write_claim(workdir, to_dict(config), write_tokenizer)
    _check_shared(workdir)


def check_workdir(workdir: epath.PathLike, config: Any) -> None:
    """Checks that a working directory is free, or that of a run with the configuration `config`.

    Raises:
        ConfigError: as `claim_workdir`.
    """
    workdir = epath.Path(workdir)
    is_bound = _has_checkpoints(workdir)
    if not (workdir / "config.json").exists():
        if is_bound:
            raise ConfigError(
                f"{workdir} has checkpoints, but its config.json is missing, which says whose they "
                f"are; {_RESTORE}"
            )
        return
    differ = edited(read_config(workdir), config)
    if differ and is_bound:
        raise ConfigError(
            f"{workdir} holds a run with another configuration (there -> here):\n  "
            + "\n  ".join(differ)
            + "\nResume with the same configuration, or give a new --workdir."
        )


def edited(old: Mapping[str, Any], config: Any) -> list[str]:
    """Lists where a configuration differs, in what counts, from that of a checkpoint.

    Args:
        old: that of the checkpoint (`Progress.config`).
        config: dataclass of the run.
    """
    return differences(_bound(_with_defaults(config, dict(old))), _bound(to_dict(config)))


def _has_checkpoints(workdir: epath.Path) -> bool:
    return any((workdir / "checkpoints").glob("[0-9]*"))


def _check_shared(workdir: epath.Path) -> None:
    """Checks that all hosts see one folder, not each its own copy of it."""
    if jax.process_count() == 1:
        return
    # A name that no earlier copy of the folder can hold.
    name = gather_texts("workdir token", f".shared-{secrets.token_hex(8)}")[0]
    if is_first():
        (workdir / name).write_text("written by host 0, to be seen by all\n")
    wait_for_all("workdir token")
    arrives = (workdir / name).exists()
    hosts = gather_texts("workdir shared", json.dumps(arrives))
    if is_first():
        (workdir / name).unlink()
    apart = [str(host) for host, text in enumerate(hosts) if not json.loads(text)]
    if apart:
        raise ConfigError(
            f"--workdir={workdir}: what host 0 writes there does not arrive on host "
            f"{', '.join(apart)}; give a folder that all hosts share, such as gs://BUCKET/RUN"
        )


def _write_claim(
    workdir: epath.Path,
    config: dict[str, Any],
    write_tokenizer: Callable[[epath.Path], None],
) -> None:
    path = workdir / "config.json"
    workdir.mkdir(parents=True, exist_ok=True)
    # That of a run which has learned is never replaced: what follows may yet find that it differs.
    if not (_has_checkpoints(workdir) and any((workdir / f).exists() for f in TOKENIZER_FILES)):
        write_tokenizer(workdir)
    scratch = path.with_suffix(".tmp")
    scratch.write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    scratch.replace(path)


def read_config(workdir: epath.PathLike) -> dict[str, Any]:
    """Reads the resolved configuration of a run.

    Raises:
        ConfigError: if `workdir` holds no run.
    """
    path = epath.Path(workdir) / "config.json"
    if not path.exists():
        raise ConfigError(f"{path} does not exist; give the folder of a run")
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ConfigError(f"{path}: not JSON ({error}); {_RESTORE}") from error
    if isinstance(values, dict) and "model_type" in values:
        raise ConfigError(
            f"{workdir} holds a model in Hugging Face's form, not a run; fine-tune it first, with "
            f"--config.init_from={workdir}"
        )
    if not isinstance(values, dict) or "model" not in values:
        raise ConfigError(f"{path}: not the configuration of a run; {_RESTORE}")
    return values


def _with_defaults(config: Any, values: dict[str, Any]) -> dict[str, Any]:
    """Fills in the keys that an older version did not know, so that it does not seem to differ."""
    try:
        return to_dict(from_dict(type(config), values))
    except ConfigError:
        return values  # the comparison names what is wrong with it


def _bound(config: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in FREE_SECTIONS}
