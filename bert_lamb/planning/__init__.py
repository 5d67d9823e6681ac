"""What a training step costs on a machine that is not here: compiled for it, then read."""
