"""What a pretrained model knows: held-out scores, simple baselines, filled masks."""
