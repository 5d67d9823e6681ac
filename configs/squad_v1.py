r"""SQuAD v1.1 with the published fine-tuning settings.

Command:
    bert-lamb squad train --config=configs/squad_v1.py --workdir=runs/squad-v1 \
        --config.init_from=runs/bert --config.train=train-v1.1.json --config.dev=dev-v1.1.json

Hardware: any one accelerator with 16 GiB; max_rows_per_device accumulates where there is less.
Published: BERT-large, F1 90.9, EM 84.1 on dev (Devlin et al., arXiv 1810.04805, table 2), with 3
epochs, batch 32 and 5e-5; LAMB's BERT-large, F1 90.58 to 91.48 (arXiv 1904.00962, table 1).
"""

import ml_collections


def get_config() -> ml_collections.ConfigDict:
    return ml_collections.ConfigDict(
        {
            "seed": 0,
            "init_from": "runs/bert",
            "train": "train-v1.1.json",
            "dev": "dev-v1.1.json",
            "version": "1.1",
            "features": {"seq_length": 384, "stride": 128, "max_query": 64},
            "answers": {"n_best": 20, "max_answer_tokens": 30},
            "epochs": 3.0,
            "global_batch": 32,
            "peak_lr": 5e-5,
            "warmup_share": 0.1,
            # As Google's code: no correction of the moments' bias.
            "optimizer": {"name": "adamw", "weight_decay": 0.01, "bias_correction": False},
            "checkpoint": {"every_steps": 1_000, "keep": 2},
            "evaluation": {"batch": 32},
            "logging": {"every_steps": 10, "tensorboard": True},
        }
    )
