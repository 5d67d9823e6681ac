"""Config files and the `--config.KEY=VALUE` overrides of the command line."""

import difflib
import re
import runpy
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from bert_lamb.config import ConfigError, PretrainConfig, from_dict, to_dict

Config = TypeVar("Config")


def load_config(path: str, overrides: Sequence[str]) -> PretrainConfig:
    """Evaluates the config file of a pretraining run, see `load_config_as`."""
    return load_config_as(PretrainConfig, path, overrides)


def load_config_as(kind: type[Config], path: str, overrides: Sequence[str]) -> Config:
    """Evaluates a config file, fills in the defaults and applies `--config.KEY=VALUE` overrides.

    The file is checked first, so that ml_collections, which parses the overrides by the types it
    finds, meets every key there is with a value of the right type.
    """
    from absl import flags
    from ml_collections import ConfigDict, config_flags

    from_file = from_dict(kind, _run_config_file(path))
    for override in overrides:
        _check_override(override, to_dict(from_file))
    values, argv = flags.FlagValues(), ["bert-lamb", *overrides]
    try:
        config_flags.DEFINE_config_dict(
            "config", ConfigDict(to_dict(from_file)), flag_values=values, sys_argv=argv
        )
        rest = values(argv)[1:]
    except (flags.Error, AttributeError, KeyError, IndexError, TypeError, ValueError) as error:
        text = " ".join(map(str, error.args)) or type(error).__name__
        raise ConfigError(f"{' '.join(overrides)}: {text}") from None
    if rest:
        raise ConfigError(f"unknown arguments: {' '.join(rest)}")
    return from_dict(kind, values.config.to_dict())


def as_flags(config: Any) -> list[str]:
    """Returns every key of a configuration as the flag that sets it.

    Lists of values and None, which no flag can set, stand behind a #.
    """

    def flags(key: str, value: Any) -> list[str]:
        if isinstance(value, Mapping):
            return [flag for k, v in value.items() for flag in flags(f"{key}.{k}", v)]
        if isinstance(value, list) and value and isinstance(value[0], Mapping):
            return [flag for i, v in enumerate(value) for flag in flags(f"{key}[{i}]", v)]
        if isinstance(value, list) or value is None:
            return [f"# {key} = {value} (set it in the file)"]
        return [f"--{key}={shlex.quote(str(value))}"]

    return flags("config", to_dict(config))


def _check_override(override: str, config: Mapping[str, Any]) -> None:
    """Raises ConfigError if `--config.KEY=VALUE` names no key, with the nearest one there is."""
    key = override.partition("=")[0]
    if not key.startswith("--config."):
        raise ConfigError(f"unknown argument {override}; keys are set as --config.KEY=VALUE")
    here: Any = config
    for part in re.findall(r"[^.\[\]]+|\[[^\]]*\]?", key.removeprefix("--config.")):
        if isinstance(here, Mapping):
            if part not in here:
                near = difflib.get_close_matches(part, here, n=1)
                hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(here)}"
                raise ConfigError(f"{override}: unknown key {part}; {hint}")
            here = here[part]
        elif isinstance(here, list):
            number = part.strip("[]")
            if not number.isdigit() or int(number) >= len(here):
                raise ConfigError(f"{override}: index {number}, expected [0] to [{len(here) - 1}]")
            here = here[int(number)]
        else:
            raise ConfigError(f"{override}: there is no {part} in a single value")
    if isinstance(here, Mapping | list) or here is None:
        raise ConfigError(f"{override}: only single values can be set here; edit the config file")
    value = override.partition("=")[2]
    if "=" in override and not _fits(value, here):
        expected = {bool: "True or False", int: "a whole number", float: "a number"}[type(here)]
        raise ConfigError(f"{override}: expected {expected}")


def _fits(value: str, like: object) -> bool:
    """Says whether a flag's text can become a value of the type that the config has."""
    if isinstance(like, bool):
        return value.lower() in ("true", "t", "1", "false", "f", "0")
    if not isinstance(like, int | float):
        return True
    try:
        type(like)(value)
    except ValueError:
        return False
    return True


def _run_config_file(path: str) -> Mapping[str, Any]:
    """Runs a Python file and returns what its get_config() does, as plain values."""
    if not Path(path).is_file():
        raise ConfigError(f"--config={path}: no such file; see the folder configs/")
    try:
        get_config = runpy.run_path(path).get("get_config")
        config: Any = get_config() if get_config is not None else None
    except (Exception, SystemExit) as error:  # whatever the user's code does
        raise ConfigError(f"--config={path}: {type(error).__name__}: {error}") from error
    if get_config is None:
        raise ConfigError(f"--config={path}: the file defines no get_config()")
    config = config.to_dict() if hasattr(config, "to_dict") else config
    if not isinstance(config, Mapping):
        raise ConfigError(
            f"--config={path}: get_config() returned {type(config).__name__}, expected a ConfigDict"
        )
    return config
