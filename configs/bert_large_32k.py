"""BERT-Large with LAMB, batch 32,768: a row of table 1 (You et al., arXiv 1904.00962).

Command:
    bert-lamb pretrain --config=configs/bert_large_32k.py --workdir=DIR \
        --config.phases[0].records=RECORDS/seq128/train \
        --config.phases[1].records=RECORDS/seq512/train

Hardware: 1,024 TPU v3 chips. Published: 101.2 min, SQuAD v1.1 F1 91.475. With LARS, by
--config.optimizer.name=lars, the paper has a run that diverges. Predicted time: see docs/recipe.md.
Nothing of this size has been run here.

Published: batch, learning rate, warm-up, steps in all, nine tenths of the epochs at 128 tokens,
LAMB's constants. Stand-ins: one schedule through both phases, decay counted from step 0, moments
kept between the phases, LAMB's learning rates for LARS.
"""

import ml_collections

from bert_lamb import recipes


def get_config() -> ml_collections.ConfigDict:
    return recipes.one_batch(32_768)
