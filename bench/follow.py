"""What it costs to take a saved file into a retriever while its folder is followed (`liebig update --watch`).

    python bench/follow.py RETRIEVER SOURCE [--saves 6]

SOURCE is the folder that RETRIEVER was built from; a note in it is saved again and again. Prints the CPU and wall
seconds of each update, all in one process as when a folder is followed. The first ones load the model and compile, and
those after which a hundredth of the passages have changed measure the unit of the vectors' scores again.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from liebig.builder.update import update
from liebig.search.embed import keep_models


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("retriever", type=Path)
    parser.add_argument("source", type=Path)
    parser.add_argument("--saves", type=int, default=6)
    args = parser.parse_args()
    note = args.source / "note-of-the-benchmark.md"
    with keep_models():
        for number in range(args.saves):
            note.write_text(f"# Note {number}\n\nThe valve of pump {time.time_ns()} was opened.\n")
            began = time.process_time(), time.perf_counter()
            update(args.retriever, [], lambda line: None)
            print(
                f"{time.process_time() - began[0]:.2f} CPU s, {time.perf_counter() - began[1]:.2f} s",
                flush=True,
            )
    note.unlink()


if __name__ == "__main__":
    main()
