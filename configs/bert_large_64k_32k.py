"""BERT-Large in 8,599 steps: mixed batch 65,536 x 128, then 32,768 x 512, LAMB with re-warm-up.

Command:
    bert-lamb pretrain --config=configs/bert_large_64k_32k.py --workdir=DIR \
        --config.phases[0].records=RECORDS/seq128/train \
        --config.phases[1].records=RECORDS/seq512/train

Hardware of the paper: 1,024 TPU v3 chips. Published time 76.19 min, SQuAD v1.1 F1 90.584 (You et
al., arXiv 1904.00962, table 1). Nothing of this recipe has been run here at its full size.

Published: batches, sequence lengths, total steps, weight decay, b1, b2, eps, clipping, re-warm-up.
Stand-ins: the paper does not give the learning rate and warm-up of each phase; those below are
NVIDIA's for the same batches (peak 6e-3 with 2,000 steps of warm-up, then 4e-3 with 200, square
root decay counted from step 0), with which NVIDIA reports SQuAD F1 90.96.
"""

import ml_collections


def get_config() -> ml_collections.ConfigDict:
    return ml_collections.ConfigDict(
        {
            "seed": 0,
            "model": {
                "num_layers": 24,
                "hidden_size": 1024,
                "num_heads": 16,
                "intermediate_size": 4096,
                "activation": "gelu_tanh",
                "dtype": "bfloat16",
                "dropout_rng": "rbg",
            },
            "optimizer": {
                "b1": 0.9,
                "b2": 0.999,
                "eps": 1e-6,
                "weight_decay": 0.01,
                "clip_norm": 1.0,
            },
            "phases": [
                {
                    "records": "",
                    "heldout": "",
                    "seq_length": 128,
                    "global_batch": 65_536,
                    "steps": 7_037,
                    "max_predictions": 20,
                    "peak_lr": 6e-3,
                    "warmup_steps": 2_000,
                    "decay_power": 0.5,
                    "decay_form": "from_zero",
                    "max_rows_per_device": 32,
                },
                {
                    "records": "",
                    "heldout": "",
                    "seq_length": 512,
                    "global_batch": 32_768,
                    "steps": 1_562,
                    "max_predictions": 80,
                    "peak_lr": 4e-3,
                    "warmup_steps": 200,
                    "decay_power": 0.5,
                    "decay_form": "from_zero",
                    "carry": "weights",
                    "max_rows_per_device": 16,
                },
            ],
            "checkpoint": {"every_steps": 500, "keep": 3},
            "evaluation": {"every_steps": 500, "batch": 2_048, "max_examples": 10_240},
            "logging": {"every_steps": 20, "tensorboard": True},
        }
    )
