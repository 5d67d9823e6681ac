"""The `bert-lamb` command."""

from bert_lamb.cli.command import main

__all__ = ["main"]
