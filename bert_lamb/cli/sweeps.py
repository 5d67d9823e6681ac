"""Keys of a configuration that take several values: `--sweep KEY=V1,V2`."""

import itertools
import re
from collections.abc import Sequence

from bert_lamb.config import ConfigError

_ALL_PHASES = "phases[*]"


def parse_sweep(text: str) -> tuple[str, tuple[str, ...]]:
    """Splits `config.KEY=V1,V2` into the key and its values.

    Raises:
        ConfigError: if it has another form, or a value twice.
    """
    key, equals, values = text.partition("=")
    parts = tuple(part.strip() for part in values.split(","))
    if not re.fullmatch(r"config\.\S+", key) or not equals or not all(parts):
        raise ConfigError(
            f"--sweep {text}: expected config.KEY=V1,V2, as in config.model.remat=none,full"
        )
    if len(set(parts)) < len(parts):
        raise ConfigError(f"--sweep {text}: expected each value once")
    return key, parts


def settings_of(sweeps: Sequence[tuple[str, tuple[str, ...]]]) -> list[dict[str, str]]:
    """Returns all combinations of values, the last key changing fastest; one if there are no keys.

    Raises:
        ConfigError: if a key is swept twice.
    """
    keys = [key for key, _ in sweeps]
    for key in keys:
        if keys.count(key) > 1:
            raise ConfigError(f"--sweep {key}: given twice; put its values behind one =")
    combined = itertools.product(*(values for _, values in sweeps))
    return [dict(zip(keys, values, strict=True)) for values in combined]


def expand_phases(flag: str, phases: int) -> list[str]:
    """Returns `--config.phases[*].KEY=VALUE` as one flag for each phase, others as they are."""
    key, equals, value = flag.partition("=")
    if _ALL_PHASES not in key:
        return [flag]
    each = (key.replace(_ALL_PHASES, f"phases[{index}]") for index in range(phases))
    return [f"{one}{equals}{value}" for one in each]
