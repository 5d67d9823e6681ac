#!/usr/bin/env bash
# The main job from text to filled masks, each step a command that you can run yourself.
#   scripts/demo.sh SOURCE     SOURCE: `python:` or a file, glob or folder of text
set -euo pipefail
source=$1
bin=${BIN:-.venv/bin}
data=runs/demo-data
run=runs/demo
start=$SECONDS

# Runs a command after showing it so that it can be pasted.
step() {
  local word
  printf '\n$ %s' "$bin/$1"
  for word in "${@:2}"; do
    if [[ $word =~ ^[[:alnum:]_./:=,-]+$ ]]; then printf ' %s' "$word"; else printf " '%s'" "$word"; fi
  done
  printf '\n'
  "$bin/$1" "${@:2}"
}

echo "Pretraining a tiny BERT on: $source"
# What an earlier demo left is moved aside, and comes back if the new text does not become records.
for folder in "$data" "$run"; do
  if [ -e "$folder" ]; then
    rm -rf "$folder.before"
    mv "$folder" "$folder.before"
  fi
done
restore() {
  rm -rf "$data"
  for folder in "$data" "$run"; do
    if [ -e "$folder.before" ]; then mv "$folder.before" "$folder"; fi
  done
}
trap restore EXIT
step bert-lamb data vocab --source "$source" --size 4096 --output "$data/vocab"
for length in 128 512; do
  step bert-lamb data build --source "$source" --vocab "$data/vocab" --seq-length "$length" \
    --heldout 0.05 --output "$data/seq$length"
done
trap - EXIT
if [ -e "$run.before" ]; then echo "The earlier demo is now in $run.before and $data.before"; fi
step bert-lamb pretrain --config=configs/demo.py --workdir="$run"
step bert-lamb evaluate --workdir="$run" --records="$data/seq128/heldout" \
  --train-records="$data/seq128/train" --max-examples=640
step bert-lamb fill-mask --workdir="$run" \
  "This function returns a new [MASK] ." \
  "If the value is [MASK] , an error is raised ." \
  "The number of [MASK] in the list ."

steps=("$run"/checkpoints/[0-9]*)
newest=$(printf '%s\n' "${steps[@]##*/}" | sort -n | tail -1)
cat <<END

The whole demo took $((SECONDS - start)) seconds. That is enough to learn which words are frequent, not yet what
a sentence means: the guesses above are common words, and accuracy_ratio says how many times more
often the model is right than always guessing the most frequent token.
  checkpoints   $run/checkpoints    ($bin/bert-lamb inspect $run/checkpoints/$newest)
  metrics       $run/metrics.jsonl
  TensorBoard   $run/tensorboard    (pip install tensorboard; tensorboard --logdir $run)
Next:
  $bin/bert-lamb fill-mask --workdir=$run "your own [MASK] ."
  make demo CORPUS='path/*.txt'     the same on your text
  docs/recipe.md                    the full recipe: BERT-Large, batch 64K/32K, 8,599 steps
END
