#!/usr/bin/env bash
# Print one interpreter for each Python that the package claims and this machine has, from PATH or pyenv, a line each.
for minor in 11 12 13 14; do
  for python in "python3.$minor" python3 "$HOME"/.pyenv/versions/3."$minor"*/bin/python; do
    "$python" -c "import sys, venv; assert sys.version_info[:2] == (3, $minor); print(sys.executable)" 2>/dev/null && break
  done
done
exit 0
