#!/usr/bin/env bash
# The main job from text to filled masks, each step a command that you can run yourself.
#   scripts/demo.sh SOURCE     SOURCE: `python:` or a file, glob or folder of text
set -euo pipefail
source=$1
bin=${BIN:-.venv/bin}
data=runs/demo-data
run=runs/demo
start=$SECONDS

# Runs a command after showing it as the user would type it.
step() {
  printf '\n$ %s\n' "$*"
  "$bin/$@"
}

echo "Pretraining a tiny BERT on: $source"
rm -rf "$data" "$run"
step bert-lamb data vocab --source "$source" --size 4096 --output "$data/vocab"
for length in 128 512; do
  step bert-lamb data build --source "$source" --vocab "$data/vocab" --seq-length "$length" \
    --heldout 0.05 --output "$data/seq$length"
done
step bert-lamb pretrain --config=configs/demo.py --workdir="$run"
step bert-lamb evaluate --workdir="$run" --records="$data/seq128/heldout" \
  --train-records="$data/seq128/train" --max-examples=640
step bert-lamb fill-mask --workdir="$run" \
  "This function returns a new [MASK] ." \
  "If the value is [MASK] , an error is raised ." \
  "The number of [MASK] in the list ."

cat <<END

The whole demo took $((SECONDS - start)) seconds.
  checkpoints   $run/checkpoints    (bert-lamb inspect $run/checkpoints/STEP)
  metrics       $run/metrics.jsonl
  TensorBoard   $run/tensorboard    (pip install tensorboard; tensorboard --logdir $run)
Next:
  $bin/bert-lamb fill-mask --workdir=$run "your own [MASK] ."
  make demo CORPUS='path/*.txt'     the same on your text
  docs/recipe.md                    the full recipe: BERT-Large, batch 64K/32K, 8,599 steps
END
