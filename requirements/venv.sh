#!/usr/bin/env bash
# Make the development environment: requirements/venv.sh PYTHON FOLDER. Running it again installs only what changed.
set -euo pipefail
cd "$(dirname "$0")/.."
python=$1 venv=$2

fail() { echo "error: $*" >&2; exit 1; }

command -v "$python" >/dev/null || python=python3
command -v "$python" >/dev/null || fail "no Python found. Install Python 3.11 or newer (Debian: apt-get install python3 python3-venv)."
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
  fail "$($python --version) is too old: 3.11 or newer is needed. Name another one: make BASE_PYTHON=/path/to/python venv"

if ! [ -x "$venv/bin/python" ]; then
  # Debian splits venv's ensurepip into a package of its own.
  if ! "$python" -c 'import ensurepip, venv' 2>/dev/null && ! command -v uv >/dev/null; then
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null ||
      fail "$python cannot make virtual environments. Install python3-venv (Debian: apt-get install python3-venv) or uv."
    apt-get update -qq && apt-get install -y -qq --no-install-recommends python3-venv >/dev/null
  fi
  if command -v uv >/dev/null; then uv venv -q --python "$python" "$venv"; else "$python" -m venv "$venv"; fi
fi

uv=$(command -v uv || true)
if [ -z "$uv" ]; then
  uv=$venv/bin/uv
  [ -x "$uv" ] || "$venv/bin/pip" install -q --require-hashes -r requirements/uv.lock
fi
started=$SECONDS
"$uv" pip install -q --python "$venv/bin/python" --require-hashes -r requirements/dev.lock
"$uv" pip install -q --python "$venv/bin/python" --no-deps -e .
echo "environment ready in $((SECONDS - started)) s: $venv"
