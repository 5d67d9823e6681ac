#!/usr/bin/env bash
# The recorded run of configs/bert_mini_wikibooks_cpu.py, from text to scores. Stopped anywhere, the
# same command goes on where it was.
#   scripts/measured_run.sh WIKI BOOKS     JSON-lines files of the two sources
set -euo pipefail
if [ $# -ne 2 ] || [ -z "$1" ] || [ -z "$2" ]; then
  echo "usage: make measured-run WIKI=wiki.jsonl.xz BOOKS=books.jsonl.xz" >&2
  exit 2
fi
bin=${BIN:-.venv/bin}
data=runs/wikibooks-data
run=runs/wikibooks
sources=(--source "$1" --source "$2")

step() {
  printf '\n$ %s\n' "$*"
  "$bin/$1" "${@:2}"
}

[ -d "$data/vocab" ] || step bert-lamb data vocab "${sources[@]}" --size 8192 --output "$data/vocab"
for length in 128 512; do
  [ -d "$data/seq$length" ] || step bert-lamb data build "${sources[@]}" --vocab "$data/vocab" \
    --seq-length "$length" --heldout 0.02 --output "$data/seq$length"
done
step bert-lamb pretrain --config=configs/bert_mini_wikibooks_cpu.py --workdir="$run"
for length in 128 512; do
  step bert-lamb evaluate --workdir="$run" --records="$data/seq$length/heldout" \
    --train-records="$data/seq$length/train"
done
step bert-lamb fill-mask --workdir="$run" \
  "The capital of France is [MASK] ." \
  "He was born in [MASK] and died in London ." \
  "She opened the [MASK] and looked out into the garden ." \
  "The river flows into the [MASK] ." \
  "\"I do not know ,\" [MASK] the old man ."
step python scripts/plot_metrics.py "$run/metrics.jsonl" "$run/losses.png"
