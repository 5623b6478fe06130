"""`liebig compare`: which systems differ on the same queries, by paired tests with Holm's correction.

Reads run files (evaluated here, on one collection) or folders that `liebig evaluate` wrote. Runs of one name are seeds
of one system: their values are averaged query by query before systems are compared, and how far they differ is said.
The correction covers all comparisons of one measure. A letter behind a mean names a system that is significantly worse.
"""

from __future__ import annotations

from liebig.base.errors import RecipeError
from liebig.base.pipeline import Stage
from liebig.base.progress import counted
from liebig.base.statistics import ALPHA
from liebig.base.workspace import Folder
from liebig.evaluation.comparison import (
    CompareConfig,
    _names,
    _read_all,
    compare_systems,
    gather,
    mean_rows,
    pair_rows,
    to_json,
)
from liebig.evaluation.tables import markdown, rich_table, show
from liebig.measures import parse_all

RESULT = "compare.json"


def run(config: CompareConfig, folder: Folder) -> None:
    names = _names(config)
    if len(set(names)) < 2:
        raise RecipeError(
            "there is only one system to compare", fix="give two runs or more, with different names"
        )
    systems, queries = gather(names, _read_all(config), [str(m) for m in parse_all(config.measures)])
    comparison = compare_systems(
        systems, queries, baseline=config.baseline, samples=config.samples, seed=config.seed
    )
    folder.write_json(RESULT, to_json(comparison))
    header, rows = mean_rows(comparison)
    pair_header, pairs = pair_rows(comparison)
    folder.write_text(
        "compare.md", markdown(header, rows, left=1) + "\n" + markdown(pair_header, pairs, left=3)
    )
    show(rich_table("", header, rows, left=1))
    show(rich_table("", pair_header, pairs, left=3))
    show(
        f"{counted(queries, 'queries')}; randomisation test, Holm over the pairs of a measure; "
        f"letters: p (Holm) <= {ALPHA}"
    )


STAGE = Stage(
    "compare",
    CompareConfig,
    run,
    "liebig compare runs/a/run.trec runs/b/run.trec --qrels runs/collection --out runs/comparison",
    positional="runs",
    document=RESULT,
)
