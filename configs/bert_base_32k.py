"""BERT-Base with LAMB, batch 32,768: the rules of table 1 for the smaller model.

Command:
    bert-lamb pretrain --config=configs/bert_base_32k.py --workdir=DIR \
        --config.phases[0].records=RECORDS/seq128/train \
        --config.phases[1].records=RECORDS/seq512/train

Hardware: laid out for 256 TPU v3 chips. Nothing is published for this size and these batches: no
time, no F1. Predicted time: see docs/recipe.md. Nothing of this size has been run here.

Published: what bert_large_32k.py says of BERT-Large. Stands in: that its rates suit BERT-Base.
"""

import ml_collections

from bert_lamb import recipes


def get_config() -> ml_collections.ConfigDict:
    return recipes.one_batch(32_768, chips=256, size="base")
