#!/usr/bin/env bash
# Makes the Python environment of a TPU VM worker beside this file: install.sh WHEEL
set -euo pipefail
cd "$(dirname "$0")"
wheel=$1
# The system's Python is 3.10 on these images; uv brings one that the package supports.
python3 -m pip install --quiet --user --upgrade uv
uv=$(python3 -m site --user-base)/bin/uv
"$uv" venv --quiet --allow-existing --python 3.12 venv
# gcsfs: with it etils reads and writes gs:// paths.
"$uv" pip install --quiet --python venv/bin/python --reinstall-package bert-lamb "./${wheel}[tpu]" gcsfs
venv/bin/bert-lamb --version
