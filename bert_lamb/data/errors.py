"""The exceptions of this package."""


class DataError(ValueError):
    """A fault the user can mend; the message names the file or key, the value and the remedy."""


def last_line(error: Exception) -> str:
    """Returns the last line of an error's text, the only useful one with some libraries."""
    return (str(error).strip().splitlines() or [type(error).__name__])[-1]


class KeptWorkError(DataError):
    """A fault outside of the text: a build keeps its work, and goes on when it is repeated."""
