"""Documents of sentences of ids to unmasked examples."""
