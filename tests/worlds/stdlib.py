"""The documentation of the whole standard library, read by a fresh interpreter."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FILE = "library.json"
CODE = """
import json, sys
from liebig.formats.stdlib import read_stdlib
records = [item.record for item in read_stdlib('stdlib:')]
texts = [(record.id, record.text, bool(record.sections)) for record in records]
with open(sys.argv[1], 'w') as file:
    json.dump({'texts': texts, 'modules': sorted(sys.modules)}, file)
"""


def read_library(folder: Path) -> None:
    """Write ids, texts and whether they have sections, and the modules that reading them imported."""
    folder.mkdir()
    subprocess.run([sys.executable, "-c", CODE, str(folder / FILE)], check=True)
