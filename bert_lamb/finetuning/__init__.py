"""Fine-tuning of pretrained models: SQuAD and GLUE as tasks of the one trainer."""
