#!/usr/bin/env bash
# Print a Python of at least 3.12 that SkyRL admits, from PATH or pyenv; nothing if there is none.
for python in python3.12 python3.13 python3.14 python3 "$HOME"/.pyenv/versions/3.1[2-4]*/bin/python; do
  "$python" -c 'import sys, venv; assert (3, 12) <= sys.version_info < (3, 15); print(sys.executable)' 2>/dev/null && exit
done
exit 0
