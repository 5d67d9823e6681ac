"""Nested mappings to sections and back, strictly; and where two configurations differ."""

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from bert_lamb.config.checks import ConfigError

T = TypeVar("T")


def from_dict(cls: type[T], values: Mapping[str, Any], path: str = "config") -> T:
    """Builds the frozen dataclass `cls` from nested mappings, strictly.

    Args:
        cls: one of the sections.
        values: a mapping (a plain dict or a ConfigDict) whose keys are fields of `cls`.
        path: the key under which `values` stands, for messages.

    Raises:
        ConfigError: for an unknown key (with the nearest valid one), a value of another type, or
            one out of range.
    """
    hints = typing.get_type_hints(cls)
    known = {f.name for f in dataclasses.fields(cls)}  # type: ignore[arg-type]
    for key in values:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1, cutoff=0.5)
            hint = (
                f"did you mean {path}.{near[0]}?" if near else f"known: {', '.join(sorted(known))}"
            )
            raise ConfigError(f"{path}.{key} = {values[key]!r}: unknown key; {hint}")
    converted = {key: _convert(hints[key], value, f"{path}.{key}") for key, value in values.items()}
    try:
        return cls(**converted)
    except ValueError as error:  # sections of other folders have errors of their own
        raise ConfigError(f"{path}.{error}") from None


def _convert(hint: Any, value: Any, path: str) -> Any:
    """Returns `value` as the type `hint`; raises ConfigError naming `path` if it is not one."""
    origin, args = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint) and isinstance(value, Mapping):
        return from_dict(hint, value, path)  # type: ignore[arg-type]
    if origin is tuple and isinstance(value, list | tuple):
        return tuple(_convert(args[0], item, f"{path}[{i}]") for i, item in enumerate(value))
    if origin is Literal:
        if value in args:
            return value
        raise ConfigError(f"{path} = {value!r}: expected one of {', '.join(map(repr, args))}")
    if origin is types.UnionType:
        return None if value is None else _convert(args[0], value, path)
    if isinstance(value, bool) and hint is not bool:
        pass  # bool is an int to Python, not to us
    elif hint is float and isinstance(value, int | float):
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise ConfigError(f"{path} = {value!r:.40}: expected a finite number")
        return number
    elif isinstance(hint, type) and isinstance(value, hint):
        return value
    raise ConfigError(f"{path} = {value!r}: expected {_describe(hint)}, got {type(value).__name__}")


def _describe(hint: Any) -> str:
    if dataclasses.is_dataclass(hint):
        return "a section (mapping)"
    if typing.get_origin(hint) is tuple:
        return f"a list of {_describe(typing.get_args(hint)[0])}"
    return getattr(hint, "__name__", str(hint))


def to_dict(config: Any) -> dict[str, Any]:
    """Returns the configuration as nested plain dicts and lists, ready for JSON."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(item) for key, item in value.items()}
        return [plain(item) for item in value] if isinstance(value, list | tuple) else value

    return plain(dataclasses.asdict(config))


def differences(old: Mapping[str, Any], new: Mapping[str, Any], path: str = "config") -> list[str]:
    """Lists where two configurations given as `to_dict` differ, one "key: old -> new" a line."""
    return [f"{key}: {before} -> {after}" for key, before, after in _walk(old, new, path)]


def _walk(old: Any, new: Any, path: str) -> list[tuple[str, Any, Any]]:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        keys = [*old, *(key for key in new if key not in old)]
        missing = "(absent)"
        return [
            item
            for key in keys
            for item in _walk(old.get(key, missing), new.get(key, missing), f"{path}.{key}")
        ]
    if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        return [
            item
            for i, pair in enumerate(zip(old, new, strict=True))
            for item in _walk(*pair, f"{path}[{i}]")
        ]
    return [] if old == new else [(path, old, new)]
