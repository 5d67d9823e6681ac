r"""SQuAD v2.0, with questions that have no answer, with the published fine-tuning settings.

Command:
    bert-lamb squad train --config=configs/squad_v2.py --workdir=runs/squad-v2 \
        --config.init_from=runs/bert --config.train=train-v2.0.json --config.dev=dev-v2.0.json

Hardware: as configs/squad_v1.py. The threshold for no answer is tuned on the dev file: each
evaluation says the best one, and `squad predict --null-threshold` takes it.
Published: BERT-large, F1 81.9, EM 78.7 on dev (Devlin et al., arXiv 1810.04805, table 3), with 2
epochs, batch 48 and 5e-5.
"""

import ml_collections


def get_config() -> ml_collections.ConfigDict:
    return ml_collections.ConfigDict(
        {
            "seed": 0,
            "init_from": "runs/bert",
            "train": "train-v2.0.json",
            "dev": "dev-v2.0.json",
            "version": "2.0",
            "features": {"seq_length": 384, "stride": 128, "max_query": 64},
            "answers": {"n_best": 20, "max_answer_tokens": 30, "null_threshold": 0.0},
            "epochs": 2.0,
            "global_batch": 48,
            "peak_lr": 5e-5,
            "warmup_share": 0.1,
            "optimizer": {"name": "adamw", "weight_decay": 0.01, "bias_correction": False},
            "checkpoint": {"every_steps": 1_000, "keep": 2},
            "evaluation": {"batch": 32},
            "logging": {"every_steps": 10, "tensorboard": True},
        }
    )
