"""Some stages of a recipe, as `liebig run` runs them all: python stages.py RECIPE OUT NAME ... [KEY=VALUE ...]"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from liebig.base import pipeline
from liebig.base.errors import LiebigError
from liebig.stages import STAGES


def main() -> None:
    recipe, out, *words = sys.argv[1:]
    names = [word for word in words if "=" not in word]
    overrides = [word for word in words if "=" in word]
    planned = pipeline.plan(STAGES, Path(recipe), overrides, Path(out))
    if unknown := set(names) - {stage.name for stage in planned}:
        raise SystemExit(f"{recipe} has no stage {', '.join(sorted(unknown))}")
    began = time.monotonic()
    try:
        pipeline.run(
            [stage for stage in planned if stage.name in names], lambda said: print(said, flush=True)
        )
    except KeyboardInterrupt:
        raise SystemExit("interrupted: the same command goes on with what was stored") from None
    except LiebigError as error:
        raise SystemExit(str(error)) from None
    print(f"{' and '.join(names)}: {time.monotonic() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
