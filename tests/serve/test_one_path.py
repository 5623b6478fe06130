"""The same folder gives the same hits and scores by every way of asking it."""

import json
import re

import pytest
from typer.testing import CliRunner

from liebig.base import workspace
from liebig.base.config import parse
from liebig.base.errors import RecipeError
from liebig.cli import make_app
from liebig.stages.retrieve import RetrieveConfig, run

QUESTION = "what limits the growth of barley in the sun?"
K = 4


@pytest.fixture(scope="module")
def queries(tmp_path_factory):
    """A collection of one query."""
    folder = tmp_path_factory.mktemp("queries") / "collection"
    folder.mkdir()
    (folder / "queries.jsonl").write_text(json.dumps({"id": "q", "text": QUESTION}) + "\n")
    return folder


def retrieved(out, **values):
    with workspace.stage(out, kind="retrieve", recipe={}, inputs={}) as folder:
        run(parse(RetrieveConfig, values), folder)
    return out


def run_of(path):
    return [(line.split()[2], float(line.split()[4])) for line in path.read_text().splitlines()]


def searched(folder, *options):
    """Ids and scores on the terminal, which shows three digits."""
    words = ["search", str(folder), QUESTION, "--k", str(K), *options]
    result = CliRunner(env={"COLUMNS": "200"}).invoke(make_app(), words)
    assert result.exit_code == 0, result.stderr
    hits = re.findall(r"(\d+)\.  (-?\d+\.\d{3})  ([\w/#]+)", result.stdout)
    return [(id, float(score)) for _, score, id in sorted(hits)]


def alike(hits, expected, abs=1e-6):
    """Equal ids, and scores up to the order of additions: packed rows may hold other questions beside."""
    assert [id for id, _ in hits] == [id for id, _ in expected]
    assert [score for _, score in hits] == pytest.approx([score for _, score in expected], rel=1e-5, abs=abs)


@pytest.mark.parametrize(
    "filters", [{}, {"language": "en"}, {"language": ["de", "en"], "doc": ["comet", "steam"]}]
)
@pytest.mark.parametrize("system", ["bm25", "dense", "hybrid", None])
def test_search_retrieve_serve_and_the_library_give_the_same_hits(
    folder, retriever, client, queries, tmp_path, system, filters
):
    expected = [(r.id, r.score) for r in retriever.search(QUESTION, K, system, filters)]
    assert expected
    body = {"query": QUESTION, "k": K, "system": system, "filters": filters}
    rows = client.post("/search", json=body).json()["results"]
    alike([(row["id"], row["score"]) for row in rows], expected)
    out = retrieved(
        tmp_path / "run", collection=queries, retriever=folder, k=K, filters=filters,
        **({} if system is None else {"system": system}),
    )  # fmt: skip
    alike(run_of(out / f"{system or 'hybrid'}.trec"), expected)
    options = [] if system is None else ["--system", system]
    for name, values in filters.items():
        options += [f"--filter={name}={value}" for value in ([values] if isinstance(values, str) else values)]
    alike(searched(folder, *options), expected, abs=6e-4)  # three digits are shown


def test_a_hybrid_run_has_the_runs_of_its_parts_beside_it(folder, retriever, queries, tmp_path):
    out = retrieved(tmp_path / "run", collection=queries, retriever=folder, k=K)
    assert sorted(path.stem for path in out.glob("*.trec")) == ["bm25", "dense", "hybrid"]
    for system in ("bm25", "dense"):
        alike(
            run_of(out / f"{system}.trec"), [(r.id, r.score) for r in retriever.search(QUESTION, K, system)]
        )
    assert json.loads((out / "search.json").read_text())["system"] == "hybrid"


def test_the_documents_of_a_retriever_are_folded(folder, retriever, queries, tmp_path):
    out = retrieved(tmp_path / "run", collection=queries, retriever=folder, system="dense", fold=True)
    best = retriever.search(QUESTION, 9, "dense")
    assert [id for id, _ in run_of(out / "dense.trec")] == list(dict.fromkeys(r.doc for r in best))


@pytest.mark.parametrize(
    "values, said",
    [
        ({"bm25": "."}, "leave out bm25"),
        ({"weight": 0.3, "k1": 2}, "leave out k1, weight"),
        ({"system": "sparse"}, "system"),
    ],
)
def test_what_a_retriever_decides_itself_is_not_taken(folder, queries, values, said):
    with pytest.raises(RecipeError, match=said):
        parse(RetrieveConfig, {"collection": str(queries), "retriever": str(folder), **values})
    with pytest.raises(RecipeError, match="only a retriever has filters and system"):
        parse(
            RetrieveConfig,
            {
                "collection": str(queries),
                "bm25": str(folder),
                "system": "bm25",
                "filters": {"language": "en"},
            },
        )


def test_a_filter_without_a_value_is_one_sentence(folder):
    result = CliRunner().invoke(make_app(), ["search", str(folder), QUESTION, "--filter", "language"])
    assert (result.exit_code, len(result.stderr.strip().splitlines())) == (2, 1)
    assert "--filter name=value" in result.stderr
