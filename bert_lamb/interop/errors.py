"""The exception of this room."""

from bert_lamb.data.errors import DataError


class InteropError(DataError):
    """Another program's file that cannot be taken over as it is.

    The message names the file, the key or tensor, the value, what was expected and the remedy.
    """
