"""The exceptions of this package."""


class DataError(ValueError):
    """A fault the user can mend; the message names the file or key, the value and the remedy."""


class KeptWorkError(DataError):
    """A fault outside of the text: a build keeps its work, and goes on when it is repeated."""
