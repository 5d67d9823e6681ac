"""BERT-Large with AdamW, batch 512: the baseline of table 1 (You et al., arXiv 1904.00962).

Command:
    bert-lamb pretrain --config=configs/bert_large_adamw_512.py --workdir=DIR \
        --config.phases[0].records=RECORDS/seq128/train \
        --config.phases[1].records=RECORDS/seq512/train

Hardware: 16 TPU v3 chips. Published: 81.4 h, SQuAD v1.1 F1 90.395. Predicted time: see
docs/recipe.md. Nothing of this size has been run here.

Published: batch, learning rate, steps in all. Stand-ins: 10,000 steps of warm-up and no correction
of the moments' bias, as BERT was first trained (Devlin et al., arXiv 1810.04805); one schedule
through both phases, moments kept between them.
"""

import ml_collections

from bert_lamb import recipes


def get_config() -> ml_collections.ConfigDict:
    return recipes.one_batch(
        512,
        base_rate=1e-4,
        warmup_steps=10_000,
        optimizer={"name": "adamw", "bias_correction": False},
    )
