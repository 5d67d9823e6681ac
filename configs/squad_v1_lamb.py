r"""SQuAD v1.1 with LAMB, for batches of hundreds of rows.

Command:
    bert-lamb squad train --config=configs/squad_v1_lamb.py --workdir=runs/squad-v1-lamb \
        --config.init_from=runs/bert --config.train=train-v1.1.json --config.dev=dev-v1.1.json

Hardware: several accelerators. Rates between 3e-4 and 5e-4 are meant for this batch; nothing of
this setting was measured at full size.
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
            "epochs": 3.0,
            "global_batch": 256,
            "peak_lr": 4e-4,
            "warmup_share": 0.1,
            "optimizer": {"name": "lamb", "weight_decay": 0.01, "clip_norm": 1.0},
            "checkpoint": {"every_steps": 200, "keep": 2},
            "evaluation": {"batch": 32},
            "logging": {"every_steps": 10, "tensorboard": True},
        }
    )
