r"""SQuAD v1.1 on a part of its training set, on 2 CPU cores.

Command:
    bert-lamb squad train --config=configs/squad_split_cpu.py --workdir=runs/squad-split \
        --config.init_from=FOLDER --config.train=split-train.json --config.dev=split-validation.json

Hardware: 2 CPU cores. Most windows of 192 tokens hold a whole paragraph with its question, at half
the cost of 384.
"""

import ml_collections


def get_config() -> ml_collections.ConfigDict:
    return ml_collections.ConfigDict(
        {
            "seed": 0,
            "init_from": "runs/wikibooks",
            "train": "split-train.json",
            "dev": "split-validation.json",
            "version": "1.1",
            "model": {"hidden_dropout": 0.1, "attention_dropout": 0.0},
            "features": {"seq_length": 192, "stride": 96, "max_query": 48},
            "epochs": 2.0,
            "global_batch": 16,
            "peak_lr": 2e-4,
            "warmup_share": 0.1,
            "optimizer": {"name": "adamw", "weight_decay": 0.01, "bias_correction": True},
            "checkpoint": {"every_steps": 200, "keep": 1},
            "evaluation": {"batch": 32},
            "logging": {"every_steps": 20, "tensorboard": False},
        }
    )
