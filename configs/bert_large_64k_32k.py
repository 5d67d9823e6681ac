"""BERT-Large in 8,599 steps: mixed batch 65,536 x 128, then 32,768 x 512, LAMB with re-warm-up.

Command:
    bert-lamb pretrain --config=configs/bert_large_64k_32k.py --workdir=DIR \
        --config.phases[0].records=RECORDS/seq128/train \
        --config.phases[1].records=RECORDS/seq512/train

Hardware of the paper: 1,024 TPU v3 chips. Published: 76.19 min, SQuAD v1.1 F1 90.584 (You et al.,
arXiv 1904.00962, table 1). Predicted time: see docs/recipe.md. Nothing of this size has been run
here.

Published: batches, sequence lengths, total steps, weight decay, b1, b2, eps, clipping, re-warm-up.
Stand-ins: the paper does not give the learning rate and warm-up of each phase; those here are
NVIDIA's for the same batches (peak 6e-3 with 2,000 steps of warm-up, then 4e-3 with 200, square
root decay counted from step 0), with which NVIDIA reports SQuAD F1 90.96.
"""

import ml_collections

from bert_lamb import recipes


def get_config() -> ml_collections.ConfigDict:
    return recipes.mixed_batch(chips=1_024)
