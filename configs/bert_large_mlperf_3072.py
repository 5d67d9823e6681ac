"""BERT-Large, phase 2 of MLPerf's BERT benchmark, LAMB at batch 3,072.

Command:
    bert-lamb pretrain --config=configs/bert_large_mlperf_3072.py --workdir=DIR \
        --config.init_from=RUN/checkpoints/STEP --config.phases[0].records=RECORDS/seq512/train

Hardware: any number of devices that is a multiple of 4 and divides the batch; laid out for a host
of 4 TPU v3 chips. The benchmark's goal is an accuracy of .72 on masked tokens; it publishes no F1
and no time for its reference. Predicted time: see docs/recipe.md. Nothing of this size has been run
here.

Published: batch, learning rate, b1, b2, weight decay, warm-up, steps and the schedule's formula, 76
predictions a row. Stand-ins: LAMB's final version with clipping at 1; your own checkpoint of phase
1 and your own records in place of the benchmark's.
"""

import ml_collections

from bert_lamb import recipes


def get_config() -> ml_collections.ConfigDict:
    return recipes.mlperf(3_072)
