"""The folders below data/ that the papers' recipes read, with a few invented texts each and tiny models.

`python -m tests.worlds.papers DATA` writes them, for `liebig reproduce all --smoke --data DATA`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from liebig.model.backbone import Backbone
from liebig.model.encoder import Encoder
from liebig.text.tokenizer import Tokenizer
from tests.worlds.queries import make_t5

TEXTS = Path(__file__).parents[2] / "recipes" / "smoke" / "texts"
PASSAGES = 24
LAYERS = 7  # Condenser's skip begins at layer 6
BEIR = (
    "msmarco",
    "nq",
    "scifact",
    "nfcorpus",
    "fiqa",
    "arguana",
    "quora",
    "dbpedia-entity",
    "scidocs",
    "fever",
)


def make(data: Path) -> Path:
    """Write everything into `data`."""
    corpus = [json.loads(line) for line in (TEXTS / "corpus.jsonl").read_text().splitlines()[:PASSAGES]]
    queries = [
        json.loads(line) for line in (TEXTS / "queries.jsonl").read_text().splitlines()[: 2 * PASSAGES]
    ]
    _models(data, [row["text"] for row in corpus] + [row["text"] for row in queries])
    passages = [(str(n), row["title"], row["text"]) for n, row in enumerate(corpus)]
    asked = [(str(100 + n), row["text"], str(n // 2)) for n, row in enumerate(queries)]
    documents = [
        json.dumps({"id": f"d{i}", "title": title, "text": f"{text} {passages[i - 1][2]}"})
        for i, (_, title, text) in enumerate(passages)
    ]
    for name in ("wikipedia", "books", "ccnet"):
        _lines(data / name / "articles.jsonl", documents)
    _msmarco(data, passages, asked)
    _beir(data / "msmarco-abs", passages, asked, ("train", "dev", "test"))
    for name in BEIR:
        _beir(data / "beir" / name, passages, asked, ("train", "dev", "test"))
    hard = [
        json.dumps({"qid": int(query), "pos": [int(own)], "neg": {"bm25": [(int(own) + 1) % PASSAGES]}})
        for query, _, own in asked
    ]
    _lines(data / "msmarco-hard-negatives" / "msmarco-hard-negatives.jsonl", hard)
    for name in ("nq", "nq-adv-hn", "triviaqa"):
        _dpr(data / name, passages, asked)
    _similarity(data, passages)
    return data


def _models(data: Path, texts: Sequence[str]) -> None:
    words = Tokenizer.train(texts, "wordpiece", 400)
    bytes_ = Tokenizer.train(texts, "bpe", 600)
    for name, family, tokenizer in (
        ("bert-base-uncased", "bert", words),
        ("roberta-base", "roberta", bytes_),
    ):
        backbone = Backbone.create(
            LAYERS,
            16,
            2,
            tokenizer.vocab_size,
            family=family,
            max_positions=130,
            dropout=0.0,
            seed=1,
            pad=tokenizer.pad,
        )
        Encoder(backbone, tokenizer, pooling="cls").save(data / name)
    make_t5(data / "all-with-prefix-t5-base-v1")


def _msmarco(data: Path, passages: Sequence[Sequence[str]], asked: Sequence[Sequence[str]]) -> None:
    """As Microsoft writes it: passages with titles, queries, judgements, triples; documents; TREC's questions."""
    _lines(
        data / "msmarco-documents" / "msmarco-docs.tsv",
        ("\t".join((f"D{n}", "http://a.b", *rest)) for n, *rest in passages),
    )
    folder, half = data / "msmarco-passage", len(asked) // 2
    _lines(folder / "corpus.tsv", ("\t".join(row) for row in passages))
    for split, some in (("train", asked[:half]), ("dev.small", asked[half:])):
        _lines(folder / f"queries.{split}.tsv", (f"{query}\t{text}" for query, text, _ in some))
        _lines(folder / f"qrels.{split}.tsv", (f"{query}\t0\t{own}\t1" for query, _, own in some))
    triples = (
        f"{query}\t{own}\t{(int(own) + n) % PASSAGES}" for query, _, own in asked[:half] for n in (1, 2, 3)
    )
    _lines(folder / "qidpidtriples.train.full.2.tsv", triples)
    folder = data / "msmarco-document"
    _lines(folder / "corpus.tsv", ("\t".join((f"D{n}", *rest)) for n, *rest in passages))
    for split, some in (("train", asked[:half]), ("dev", asked[half:])):
        _lines(folder / f"msmarco-doc{split}-queries.tsv", (f"{query}\t{text}" for query, text, _ in some))
        _lines(folder / f"msmarco-doc{split}-qrels.tsv", (f"{query} 0 D{own} 1" for query, _, own in some))
    for year, kind, mark in ((2019, "passage", ""), (2020, "passage", ""), (2019, "document", "D")):
        folder = data / f"trec-dl-{year}-{kind}"
        _lines(
            folder / f"msmarco-test{year}-queries.tsv",
            (f"{query}\t{text}" for query, text, _ in asked[half:]),
        )
        name = f"{year}qrels-{'pass' if kind == 'passage' else 'docs'}.txt"
        _lines(folder / name, (f"{query} 0 {mark}{own} 3" for query, _, own in asked[half:]))


def _beir(
    folder: Path, passages: Sequence[Sequence[str]], asked: Sequence[Sequence[str]], splits: Sequence[str]
) -> None:
    _lines(
        folder / "corpus.jsonl",
        (json.dumps({"_id": n, "title": title, "text": text}) for n, title, text in passages),
    )
    _lines(folder / "queries.jsonl", (json.dumps({"_id": query, "text": text}) for query, text, _ in asked))
    for place, split in enumerate(splits):
        rows = (f"{query}\t{own}\t1" for query, _, own in asked[place :: len(splits)])
        _lines(folder / "qrels" / f"{split}.tsv", ("query-id\tcorpus-id\tscore", *rows))


def _dpr(folder: Path, passages: Sequence[Sequence[str]], asked: Sequence[Sequence[str]]) -> None:
    """Passages, training data with negatives, and questions with answers, as DPR writes them."""
    _lines(
        folder / "psgs_w100.tsv",
        ("id\ttext\ttitle", *(f"{int(n) + 1}\t{text}\t{title}" for n, title, text in passages)),
    )

    def context(number: int) -> dict[str, object]:
        _, title, text = passages[number % PASSAGES]
        return {"title": title, "text": text, "psg_id": str(number % PASSAGES + 1)}

    train = [
        {
            "question": text, "answers": [passages[int(own)][1]], "positive_ctxs": [context(int(own))],
            "negative_ctxs": [], "hard_negative_ctxs": [context(int(own) + n) for n in (1, 2)],
        }
        for _, text, own in asked[:PASSAGES]
    ]  # fmt: skip
    _lines(folder / "biencoder-train.json", [json.dumps(train)])
    _lines(
        folder / "nq-test.qa.csv",
        (f"{text}\t{[passages[int(own)][1]]!r}" for _, text, own in asked[PASSAGES:]),
    )


def _similarity(data: Path, passages: Sequence[Sequence[str]]) -> None:
    texts = [text.partition(".")[0] for _, _, text in passages]
    for split in ("train", "dev", "test"):
        rows = (f'"{text}","{texts[n - 1]}",{n % 6}.0' for n, text in enumerate(texts))
        _lines(data / "stsb" / f"{split}.csv", rows)
        triplets = (
            json.dumps({"anchor": text, "positive": texts[n - 1], "negative": texts[n - 2]})
            for n, text in enumerate(texts)
        )
        _lines(data / "wikipedia-sections" / f"{split}.jsonl", triplets)


def _lines(path: Path, lines: Iterable[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


if __name__ == "__main__":
    print(make(Path(sys.argv[1])))
