"""Could a build choose BM25's k1 and b by the questions that it makes from the corpus?

    python experiments/adaptation/bm25_settings.py DATA OUT --sets cranfield scifact squad

For each set the default is built in OUT/SET, unless it is there. Then BM25 answers made-up and judged questions with
every k1 and b of a grid, alone and in the hybrid that the build answers with. Printed are the settings that are best
for made-up questions, what they give judged questions (points of nDCG@10 to k1 = .9, b = .4), and what the best
settings for judged questions would give. Judged questions are as in units.py.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path

from builds import arguments
from units import default_build, people_of

from liebig.base.records import Query
from liebig.bm25.search import BM25, Settings
from liebig.builder.check import EncodedOnce, enough
from liebig.builder.judge import LEANED, Judge, unit_of
from liebig.builder.questions import Question, read as read_questions
from liebig.search import retriever_folder
from liebig.search.systems import DEPTH, SENTENCE_SHARE, SENTENCES, Lexical, weighted_by

GRID = tuple(product((0.6, 0.9, 1.2, 1.6, 2.0), (0.2, 0.4, 0.6, 0.75, 0.9)))
DEFAULT = (Settings.k1, Settings.b)
Values = dict[tuple[float, float], tuple[float, float]]


def measured(folder: Path, questions: list[Question], unit: float | None) -> tuple[Values, float]:
    """nDCG@10 of BM25 and of the hybrid by k1 and b, and the unit of the cosines, measured where none is given."""
    now, encoded = retriever_folder.read(folder), EncodedOnce()
    queries, judge = [Query(str(i), one.text) for i, one in enumerate(questions)], Judge(questions)
    model = folder / str(now.model)
    dense = encoded.system(folder / str(now.index), model).search(queries, DEPTH)
    sentences = encoded.system(folder / str(now.sentences), model, SENTENCES).search(queries, DEPTH)
    unit = unit_of(questions, dense) if unit is None else unit
    fuse, found = weighted_by(LEANED, "spread", SENTENCE_SHARE, unit), {}
    for k1, b in GRID:
        lexical = Lexical(BM25.open(folder / str(now.bm25), k1=k1, b=b, hashes=False), 1).search(
            queries, DEPTH
        )
        hybrid = [fuse(lists) for lists in zip(lexical, dense, sentences)]
        alone, fused = (judge.mean(judge.measure(lists), judge.every) for lists in (lexical, hybrid))
        found[k1, b] = (alone, fused)
    return found, unit


def compare(name: str, data: Path, folder: Path) -> None:
    """Print what made-up questions would choose, and what judged ones would."""
    made = enough(read_questions(folder / str(retriever_folder.read(folder).checks)))
    some = people_of(data, name)
    by_made, unit = measured(folder, made, None)
    by_people, _ = measured(folder, some, unit)
    for place, system in enumerate(("BM25", "hybrid")):
        gains = {at: 100 * (by_people[at][place] - by_people[DEFAULT][place]) for at in GRID}
        chosen = max(GRID, key=lambda at: by_made[at][place])
        best = max(GRID, key=lambda at: gains[at])
        print(
            f"{name}, {system}: made-up questions take k1, b = {chosen}: {gains[chosen]:+.2f} for {len(some)} judged "
            f"ones, whose best is {best}: {gains[best]:+.2f}; worst {min(gains.values()):+.2f}"
        )


def main() -> None:
    given = arguments(__doc__).parse_args()
    for name in given.sets:
        compare(name, given.data, default_build(given.data, given.out, name))


if __name__ == "__main__":
    main()
