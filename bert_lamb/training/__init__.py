"""Pretraining; start reading at trainer.py."""
