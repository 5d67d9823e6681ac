"""What every section checks its values with."""


class ConfigError(ValueError):
    """A configuration that cannot be run; the message names the key, the value and the remedy."""


def require(ok: bool, key: str, value: object, expected: str) -> None:
    """Raises a ConfigError unless `ok`.

    Args:
        ok: the condition.
        key: within its section.
        value: of the key.
        expected: the condition in words.
    """
    if not ok:
        raise ConfigError(f"{key} = {value!r}: expected {expected}")
