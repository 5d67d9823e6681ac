r"""GLUE with the published fine-tuning settings; MRPC unless another task is named.

Command:
    bert-lamb glue train --config=configs/glue.py --workdir=runs/rte --config.init_from=runs/bert \
        --config.task=RTE --config.train=RTE/train.tsv --config.dev=RTE/dev.tsv

Hardware: any one accelerator; hours on a CPU with BERT-base.
Published: 3 epochs, batch 32, the best of 2e-5, 3e-5, 4e-5 and 5e-5 on dev (Devlin et al., arXiv
1810.04805, section 4.1).
"""

import ml_collections


def get_config() -> ml_collections.ConfigDict:
    return ml_collections.ConfigDict(
        {
            "seed": 0,
            "init_from": "runs/bert",
            "task": "MRPC",
            "train": "MRPC/msr_paraphrase_train.txt",
            "dev": "MRPC/dev.tsv",
            "features": {"seq_length": 128},
            "epochs": 3.0,
            "global_batch": 32,
            "peak_lr": 3e-5,
            "warmup_share": 0.1,
            "optimizer": {"name": "adamw", "weight_decay": 0.01, "bias_correction": False},
            "checkpoint": {"every_steps": 500, "keep": 2},
            "evaluation": {"batch": 32},
            "logging": {"every_steps": 10, "tensorboard": True},
        }
    )
