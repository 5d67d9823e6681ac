"""Builds of record sets: documents in, shards, manifest and report out."""
