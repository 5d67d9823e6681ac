"""The one exception of this package."""


class DataError(ValueError):
    """A fault the user can mend; the message names the file or key, the value and the remedy."""
