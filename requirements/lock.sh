#!/usr/bin/env bash
# Pin every dependency, with hashes: one resolution for development, the two images' subsets of it.
set -euo pipefail
cd "$(dirname "$0")/.."
lock() { uv pip compile -q --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --no-header "$@"; }
extra() { python3 -c "import tomllib,sys; print('\n'.join(tomllib.load(open('pyproject.toml','rb'))['project']['optional-dependencies'][sys.argv[1]]))" "$1"; }
lock pyproject.toml --extra engine --extra dev -c requirements/pins.txt -o requirements/dev.lock
lock pyproject.toml -c requirements/dev.lock -o requirements/operator.lock
extra engine | lock - -c requirements/dev.lock -o requirements/engine.lock
echo uv | lock - -o requirements/uv.lock
