"""A small workspace with everything the pages name: articles, data sets, models, runs of earlier commands."""

from __future__ import annotations

import gzip
import json
import lzma
import shutil
from pathlib import Path

from tests.worlds.docs_pages import ROOT

TOPICS = {
    "barley": "Barley grows in cool ground. What limits the growth of barley is the nutrient that is scarcest.",
    "heap": "A heap keeps its smallest item first. Two sorted lists are merged by a heap in linear time.",
    "rivers": "A river carries sand to the sea. Its delta grows where the current is slow.",
    "glass": "Glass is made of sand, soda and lime. It is melted and blown while it is hot.",
    "wheat": "Wheat needs nitrogen from the soil. Farmers add manure before they sow it.",
    "sorting": "Sorting puts items into order. Merging sorted lists is a step of merge sort.",
    "clouds": "Clouds are drops of water in the air. Rain falls when the drops have grown.",
    "iron": "Iron is melted from ore with coal. Steel is iron with little carbon in it.",
}
QUESTIONS = {
    "q1": ("what limits the growth of barley?", "barley"),
    "q2": ("how are two sorted lists merged?", "heap"),
    "q3": ("where does a river delta grow?", "rivers"),
    "q4": ("what is glass made of?", "glass"),
    "q5": ("what does wheat need from the soil?", "wheat"),
    "q6": ("when does rain fall?", "clouds"),
}


def make_world(folder: Path, model: Path) -> None:
    """Write everything below a folder, home and working directory of the commands; models are links to one."""
    (folder / "runs").mkdir()
    (folder / "recipes").symlink_to(ROOT / "recipes")
    _articles(folder / "articles")
    for name in ("scifact", "squad", "nfcorpus"):
        _beir(folder / "data" / name)
    shutil.copytree(folder / "articles", folder / "data" / "wiki")
    (folder / "models").mkdir()
    for name in ("bert-base-uncased", "contriever", "my-model"):
        (folder / "models" / name).symlink_to(model)
    for name in ("bm25", "dense", "run", "bert-1", "bert-2", "cocondenser-1", "cocondenser-2"):
        _run(folder / f"{name}.trec")
    for name in ("model", "mlm", "condenser", "condenser-tuned", "cocondenser"):
        (folder / "runs" / name).symlink_to(model)
    _published(folder)


def _articles(folder: Path) -> None:
    folder.mkdir()
    for name, text in TOPICS.items():
        first, second = text.split(". ", 1)
        body = f"# {name.title()}\n\n{first}.\n\n## More of {name}\n\n{second}\n\n{text} {text}\n"
        (folder / f"{name}.md").write_text(body, encoding="utf-8")


def _beir(folder: Path) -> None:
    (folder / "qrels").mkdir(parents=True)
    _lines(folder / "corpus.jsonl", [{"_id": n, "title": n.title(), "text": t} for n, t in TOPICS.items()])
    _lines(folder / "queries.jsonl", [{"_id": q, "text": text} for q, (text, _) in QUESTIONS.items()])
    for split in ("train", "dev", "test"):
        rows = "".join(f"{q}\t{passage}\t1\n" for q, (_, passage) in QUESTIONS.items())
        (folder / "qrels" / f"{split}.tsv").write_text(
            f"query-id\tcorpus-id\tscore\n{rows}", encoding="utf-8"
        )


def _published(folder: Path) -> None:
    """Files as others publish them: packed articles, MS MARCO's passages."""
    (folder / "wiki").mkdir()
    rows = [{"id": n, "title": n, "sections": [{"h": "", "p": [t]}]} for n, t in TOPICS.items()]
    for number in range(2):
        text = "".join(json.dumps(row) + "\n" for row in rows[number::2])
        (folder / "wiki" / f"articles-{number}.jsonl.xz").write_bytes(lzma.compress(text.encode()))
    passages = "".join(f"{number}\t{text}\n" for number, text in enumerate(TOPICS.values()))
    (folder / "collection.tsv.gz").write_bytes(gzip.compress(passages.encode()))


def _run(path: Path) -> None:
    rows = []
    for query, (_, passage) in QUESTIONS.items():
        names = [passage, *(name for name in TOPICS if name != passage)]
        rows += [f"{query} Q0 {n} {rank} {10 - rank} t" for rank, n in enumerate(names, 1)]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")


def _lines(path: Path, rows: list[dict[str, str]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
