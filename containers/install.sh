#!/bin/sh
# What the image has beside its base: an environment with fedsvm and what it needs. Usage: install.sh [FOLDER]
set -eu
folder=${1:-/opt/fedsvm}
source=$(cd "$(dirname "$0")/.." && pwd)
python3 -m venv "$folder"
"$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-cache-dir "$source"
"$folder/bin/fedsvm" --version
