"""What an evaluation found: the value of every measure for every judged query, and what to know beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from liebig.measures.names import Measure


@dataclass(frozen=True, eq=False)
class Scores:
    """Values per query (rows, all judged queries) and measure (columns).

    `tied` marks a value that depends on how a tie across the cut is broken, `missing` a judged query without hits in
    the run (its values are 0), `found_self` a query whose own id is among its hits.
    """

    measures: tuple[Measure, ...]
    queries: tuple[str, ...]
    values: NDArray[np.float64]
    tied: NDArray[np.bool_]
    hits: NDArray[np.int64]
    missing: NDArray[np.bool_]
    found_self: NDArray[np.bool_]
    unjudged_queries: int = 0
    excluded_self: bool = False

    def of(self, measure: Measure) -> NDArray[np.float64]:
        """The values of one measure."""
        return self.values[:, self.measures.index(measure)]

    def only(self, measures: Sequence[Measure]) -> Scores:
        """The same for some of the measures."""
        columns = [self.measures.index(measure) for measure in measures]
        return replace(
            self, measures=tuple(measures), values=self.values[:, columns], tied=self.tied[:, columns]
        )

    def means(self) -> dict[str, float]:
        """Mean over all judged queries, by the name of the measure."""
        n = max(len(self.queries), 1)
        return {
            str(measure): float(total / n) for measure, total in zip(self.measures, self.values.sum(axis=0))
        }

    def remarks(self) -> str:
        """`6980 queries, 3 missing, tied across the cut: 2 (nDCG@10), 0 (R@1000)`."""
        cut = [i for i, measure in enumerate(self.measures) if measure.cut and measure.order == "score"]
        ties = ", ".join(f"{int(self.tied[:, i].sum())} ({self.measures[i]})" for i in cut)
        parts = [f"{len(self.queries)} queries", f"{int(self.missing.sum())} missing"]
        parts += [f"tied across the cut: {ties}"] if ties else []
        parts += (
            [f"{self.unjudged_queries} queries of the run are not judged"] if self.unjudged_queries else []
        )
        return ", ".join(parts)
