"""Record sets to masked batches."""
