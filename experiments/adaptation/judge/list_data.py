"""What `lists.py` reads on a machine with a GPU: groups to train a cross-encoder on, and sets whose lists it makes.

    python experiments/adaptation/list_data.py sets DATA WORK
    python experiments/adaptation/list_data.py groups DATA WORK
    python experiments/adaptation/list_data.py weights FOLDER WORK/judge.z

`sets` takes the development questions of SETS, queries that are cut from the corpora (sentences, claims, keywords,
related words, titles), and what BM25 answers to both. `groups` takes titles and docstrings with their texts from
DATA/general and DATA/wiki, Natural Questions, and the training questions of SQuAD and MedQuAD, with passages that BM25
finds for each; a text or a question that shares running words with an evaluation set is left out. `weights` rounds a
model to int8 with a scale a row and codes it by Huffman.
"""

from __future__ import annotations

import argparse
import heapq
import io
import json
import lzma
import random
import sys
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from builds import DEV, drawn, judged, rows
from liebig.base import pipeline
from liebig.bm25.search import BM25
from liebig.builder import questions as made
from liebig.collection import Collection
from liebig.collection.lookup import hash64
from liebig.stages import STAGES
from natural_questions import passages_of, plain
from numpy.typing import NDArray
from safetensors.numpy import load_file

HERE = Path(__file__).parent
sys.path += [str(HERE.parent), str(HERE.parent / "encoders" / "v3")]
SETS = ("scifact", "cranfield", "squad", "medquad", "cosqa")
KNOWN = (
    *SETS,
    "vaswani",
    "trec-dl21",
    "semeval-cqa",
)  # nothing of these but training questions is trained on
EACH = {"sentence": 600, "claim": 600, "keywords": 400, "related": 400, "title": 500}
ASKED, DEPTH, MADE_DEPTH = 500, 100, 50
LONGEST = 1000  # characters of a text
FINENESS = 9  # steps in the root mean square of a row of weights
SAME = 3  # rows of one title at most
LEFT_OUT = ("reviews", "speeches", "books_standard_ebooks", "dialogue_and_intents", "nist_report_titles")
SHARES = {
    "python_code": 4500, "go_java_js_code": 2500, "web_and_knowledge_questions": 2000, "arxiv_abstracts": 3500,
    "acl_abstracts": 2500, "elife_abstracts": 2500, "elife_biomedical": 2500, "software_descriptions": 2500,
    "web_docs_mdn": 2500, "ms_dev_docs": 2000, "cloud_devops_docs": 2500, "language_and_database_docs": 2500,
    "business_finance_docs": 2000, "us_law_and_policies": 1500, "us_government_web": 2000, "openstax_textbooks": 3000,
    "dictionaries_and_glosses": 2000, "command_and_language_guides": 2000,
}  # fmt: skip
OTHERS, QUESTIONS, ARTICLES = (
    700,
    11_000,
    10_000,
)  # of other files, titles that are questions, sections of Wikipedia
MEDQUAD, NATURAL = 3000, 3500
Ints = NDArray[np.int64]


def bm25_of(folders: Sequence[Path], out: Path) -> tuple[Collection, BM25]:
    """A collection of BEIR folders, and its index."""
    tree = {
        "collection": {"kind": "init", "paths": [str(folder) for folder in folders]},
        "bm25": {"kind": "bm25", "collection": "@collection"},
    }
    planned = pipeline.plan_stages(STAGES, tree, out)
    pipeline.run(planned, lambda _: None)
    return Collection(planned[0].out), BM25.open(planned[1].out)


def ask(
    index: BM25, texts: Sequence[str], place: dict[str, int], depth: int
) -> tuple[Ints, NDArray[np.float32]]:
    """Numbers (-1: none) and scores of the best passages for every text."""
    found = index.search(list(texts), depth)
    names: dict[int, int] = {}

    def number(n: int) -> int:
        if n not in names:
            names[n] = -1 if n < 0 else place[index.id(n)]
        return names[n]

    numbers = [[number(n) for n in row] for row in found.numbers.tolist()]
    return np.array(numbers, np.int64), np.asarray(found.scores, np.float32)


def development(data: Path, name: str) -> list[made.Question]:
    """Questions of the development split; 75 of Cranfield's."""
    if name == "cranfield":
        import splits

        texts = {row["_id"]: row["text"] for row in rows(data / name / "queries.jsonl.xz")}
        chosen = splits.cranfield_dev(
            line.split("\t")[0] for line in (data / name / "qrels" / "test.tsv").read_text().splitlines()[1:]
        )
        wanted = {texts[id] for id in chosen}
        return [one for one in judged(data / name, "test") if one.text in wanted]
    return drawn(judged(data / name, DEV[name]), ASKED)


def cut(collection: Collection, seed: int = 7) -> Iterator[made.Question]:
    """Queries of every kind that are cut from a corpus."""
    passages = list(collection.passages())

    def some(count: int, of: int) -> list[Any]:
        return heapq.nsmallest(count, passages, key=lambda p: hash64(f"{seed + of} {p.id}"))

    def everything(_: str) -> bool:
        return True

    kinds: dict[str, Iterable[made.Question]] = {
        "sentence": made._sentences(some(2 * EACH["sentence"], 1), seed),
        "claim": made._claims(some(2 * EACH["claim"], 2), seed),
        "keywords": made._keywords(some(EACH["keywords"], 3), collection, everything, seed),
        "related": made._related(some(EACH["related"], 4), collection, EACH["related"], seed),
        "title": made._titles(collection, everything),
    }
    for kind, questions in kinds.items():
        yield from heapq.nsmallest(EACH[kind], questions, key=lambda q: hash64(f"{seed} {q.text}"))


def sets(data: Path, work: Path) -> None:
    out = work / "sets"
    out.mkdir(parents=True, exist_ok=True)
    for name in SETS:
        if (out / f"{name}.npz").exists():
            continue
        collection, index = bm25_of([data / name], work / "bm25" / name)
        passages = list(collection.passages())
        place = {passage.id: number for number, passage in enumerate(passages)}
        asked, queries = development(data, name), list(cut(collection))
        texts = {
            "asked": [q.text for q in asked],
            "relevant": [[place[id] for id in q.passages] for q in asked],
            "made": [[q.kind, q.text, place[q.passages[0]], q.cut] for q in queries],
        }
        with lzma.open(out / f"{name}.json.xz", "wt", encoding="utf-8", preset=6) as file:
            json.dump(texts, file, ensure_ascii=False, separators=(",", ":"))
        a, b = (
            ask(index, [q.text for q in some], place, depth)
            for some, depth in ((asked, DEPTH), (queries, MADE_DEPTH))
        )
        np.savez_compressed(
            out / f"{name}.npz",
            asked=a[0].astype(np.int16), asked_scores=a[1].astype(np.float16),
            made=b[0].astype(np.int16), made_scores=b[1].astype(np.float16),
        )  # fmt: skip
        print(
            name,
            len(passages),
            "passages,",
            len(asked),
            "asked,",
            dict(Counter(q.kind for q in queries)),
            flush=True,
        )


class Kept:
    """Texts of evaluation sets, against which `Shares` of the encoder's data are compared."""

    def __init__(self, data: Path, work: Path) -> None:
        from prepare import Kept as Runs

        target = work / "known" / "sets"
        target.mkdir(parents=True, exist_ok=True)
        for name in KNOWN:
            trained = set()
            if name in ("squad", "medquad"):
                lines = (data / name / "qrels" / "train.tsv").read_text(encoding="utf-8").splitlines()[1:]
                trained = {line.split("\t")[0] for line in lines}
            passages = [
                f"{row.get('title', '')} {row['text']}".strip()
                for row in rows(data / name / "corpus.jsonl.xz")
            ]
            asked = [
                row["text"] for row in rows(data / name / "queries.jsonl.xz") if row["_id"] not in trained
            ]
            with lzma.open(target / f"{name}.jsonl.xz", "wt", preset=0) as file:
                file.writelines(json.dumps(value) + "\n" for value in (passages, {"queries": asked}))
        self.runs = Runs(data, work / "known")
        self.asked = {plain(row) for name in KNOWN for row in self._asked(target / f"{name}.jsonl.xz")}

    @staticmethod
    def _asked(path: Path) -> list[str]:
        with lzma.open(path, "rt") as file:
            _, rest = map(json.loads, file)
        return list(rest["queries"])

    def clean(self, texts: Sequence[str]) -> list[bool]:
        return [not shares for shares in self.runs.shares(texts)]


def titled(data: Path, rng: random.Random) -> Iterator[tuple[str, str]]:
    """Titles with their texts: of general texts, and of sections of Wikipedia."""
    asking: list[tuple[str, str]] = []
    for path in sorted((data / "general").glob("*.xz")):
        name = path.name.split(".")[0]
        found = [
            (" ".join(row["title"].split()), row["text"][:LONGEST])
            for row in rows(path)
            if row.get("title") and row["kind"] in ("passage", "code") and len(row["text"]) > 40
        ]
        rng.shuffle(found)
        counts = Counter(title for title, _ in found)
        seen: Counter[str] = Counter()
        usual = []
        for title, text in found:
            last = title.rsplit(": ", 1)[-1]
            short = len(title.split()) < 2 and name not in (
                "dictionaries_and_glosses",
                "recipes",
                "command_and_language_guides",
            )
            if counts[title] > 12 or short or seen[title] >= SAME:
                continue
            seen[title] += 1
            if last.endswith("?") and len(last.split()) > 3:
                asking.append((last if rng.random() < 0.6 else title.replace(": ", " "), text))
            elif name not in LEFT_OUT:
                usual.append(
                    (
                        title.replace(": ", " ")
                        if rng.random() < 0.7
                        else last
                        if len(last.split()) > 3
                        else title,
                        text,
                    )
                )
        yield from usual[: SHARES.get(name, OTHERS)]
    yield from rng.sample(asking, min(QUESTIONS, len(asking)))


def sections(articles: Iterable[dict[str, Any]], rng: random.Random) -> Iterator[tuple[str, str]]:
    for article in articles:
        fit = [s for s in article["sections"] if sum(map(len, s["p"])) > 200]
        for section in rng.sample(fit, min(2, len(fit))):
            heading = section.get("h") or ""
            text = "\n".join(section["p"])[:LONGEST]
            yield f"{article['title']} {heading}".strip(), text


def groups(data: Path, work: Path) -> None:
    """The groups: a query, its positive, other texts that may answer it, and BM25's."""
    rng = random.Random(5)
    kept = Kept(data, work)
    print("evaluation sets read", flush=True)
    articles = list(rows(data / "wiki" / "articles-0.jsonl.xz"))
    pairs = [("title", *pair) for pair in titled(data, rng)]
    some = list(sections(rng.sample(articles, len(articles)), rng))
    pairs += [("wiki", *pair) for pair in rng.sample(some, min(ARTICLES, len(some)))]
    print(len(pairs), "titles", flush=True)
    clean = kept.clean([text for _, _, text in pairs])
    other = kept.clean([query for _, query, _ in pairs])
    left = [pair for pair, a, b in zip(pairs, clean, other) if a and b and plain(pair[1]) not in kept.asked]
    print(len(pairs) - len(left), "left out", flush=True)
    texts: dict[str, int] = {}
    out: list[dict[str, Any]] = []
    same = defaultdict(list)
    for kind, query, text in left:
        number = texts.setdefault(text, len(texts))
        same[query.lower()].append(number)
        out.append({"k": kind, "q": query, "p": number})
    for row in out:
        row["no"] = [n for n in same[row["q"].lower()] if n != row["p"]]
    place = {f"t{number}": number for number in texts.values()}
    index = index_of(work / "pool", [(f"t{number}", "", text) for text, number in texts.items()])
    numbers, _ = ask(index, [row["q"] for row in out], place, 16)
    for row, found in zip(out, numbers.tolist()):
        row["b"] = [n for n in found[1:] if n >= 0 and n != row["p"] and n not in row["no"]][:10]
    print("BM25 has answered the titles", flush=True)
    out += natural(data, work, articles, kept, texts, rng)
    for name, count in (("squad", None), ("medquad", MEDQUAD)):
        out += labelled(data, work, name, count, kept, texts, rng)
    with lzma.open(work / "pool.json.xz", "wt", encoding="utf-8", preset=6) as file:
        json.dump(list(texts), file, ensure_ascii=False, separators=(",", ":"))
    with lzma.open(work / "groups.jsonl.xz", "wt", encoding="utf-8", preset=6) as file:
        file.writelines(json.dumps(row, ensure_ascii=False, separators=(",", ":")) + "\n" for row in out)
    print(dict(Counter(row["k"] for row in out)), len(texts), "texts", flush=True)


def index_of(out: Path, passages: Iterable[tuple[str, str, str]]) -> BM25:
    """The BM25 index of some passages."""
    folder = out / "beir"
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    with (folder / "corpus.jsonl").open("w", encoding="utf-8") as file:
        for id, title, text in passages:
            file.write(json.dumps({"_id": id, "title": title, "text": text}) + "\n")
    return bm25_of([folder / "corpus.jsonl"], out / "index")[1]


def natural(
    data: Path,
    work: Path,
    articles: Sequence[dict[str, Any]],
    kept: Kept,
    texts: dict[str, int],
    rng: random.Random,
) -> list[dict[str, Any]]:
    """Questions of people with a passage of Wikipedia that has their answer and that BM25 finds."""
    passages = [row for article in articles for row in passages_of(article)]
    place = {row["_id"]: number for number, row in enumerate(passages)}
    index = index_of(work / "natural", [(row["_id"], row["title"], row["text"]) for row in passages])
    asked = [row for row in rows(data / "nq" / "train.jsonl.xz") if plain(row["text"]) not in kept.asked]
    numbers, _ = ask(index, [row["text"] for row in asked], place, 40)
    plains: dict[int, str] = {}
    out = []
    for row, found in zip(asked, numbers.tolist()):
        answers = [f" {plain(answer)} " for answer in row["answers"] if len(plain(answer)) > 2]
        hits = [n for n in found if n >= 0]
        for n in hits:
            if n not in plains:
                plains[n] = f" {plain(passages[n]['title'] + ' ' + passages[n]['text'])} "
        has = [any(answer in plains[n] for answer in answers) for n in hits]
        right = [n for n, yes in zip(hits[:20], has) if yes]
        wrong = [n for n, yes in zip(hits, has) if not yes]
        if not right or len(wrong) < 7:
            continue
        chosen = [right[0], *rng.sample(wrong[:20], min(10, len(wrong[:20])))]
        whole = [f"{passages[n]['title']} {passages[n]['text']}" for n in chosen]
        out.append((row["text"], whole))
    out = rng.sample(out, min(NATURAL, len(out)))
    clean = iter(kept.clean([text for _, whole in out for text in whole]))
    made_groups = []
    for query, whole in out:
        numbered = [texts.setdefault(text, len(texts)) for text in whole if next(clean) or text is whole[0]]
        made_groups.append({"k": "nq", "q": query, "p": numbered[0], "no": [], "b": numbered[1:], "own": 1})
    return made_groups


def labelled(
    data: Path,
    work: Path,
    name: str,
    count: int | None,
    kept: Kept,
    texts: dict[str, int],
    rng: random.Random,
) -> list[dict[str, Any]]:
    """Training questions of a set, whose passages are those of its corpus."""
    corpus = list(rows(data / name / "corpus.jsonl.xz"))
    own = {row["_id"]: f"{row.get('title', '')} {row['text']}".strip()[:LONGEST] for row in corpus}
    collection, index = bm25_of([data / name], work / "bm25" / name)
    place = {passage.id: number for number, passage in enumerate(collection.passages())}
    ids = list(place)
    asked = [one for one in judged(data / name, "train") if plain(one.text) not in kept.asked]
    asked = rng.sample(asked, min(count or len(asked), len(asked)))
    numbers, _ = ask(index, [one.text for one in asked], place, 30)
    numbered = {id: texts.setdefault(text, len(texts)) for id, text in own.items()}
    out = []
    for one, found in zip(asked, numbers.tolist()):
        right = {numbered[id] for id in one.passages}
        wrong = [numbered[ids[n]] for n in found if n >= 0 and numbered[ids[n]] not in right]
        first = numbered[rng.choice(one.passages)]
        out.append({"k": name, "q": one.text, "p": first, "no": sorted(right - {first}), "b": wrong[:12]})
    return out * 2 if name == "squad" else out


def weights(folder: Path, out: Path) -> None:
    """int8 codes with a scale a row, coded by Huffman."""
    stored: dict[str, NDArray[Any]] = {}
    for name, value in load_file(folder / "model.safetensors").items():
        if value.ndim == 2 and value.size > 10_000 and np.issubdtype(value.dtype, np.floating):
            spread = np.sqrt(np.square(value).mean(1, keepdims=True)) / FINENESS
            scale = np.maximum(np.maximum(spread, np.abs(value).max(1, keepdims=True) / 127), 1e-7)
            scale = scale.astype(np.float16)
            stored[name] = np.rint(value / scale.astype(np.float32)).clip(-127, 127).astype(np.int8)
            stored[name + ".scale"] = scale
        elif np.issubdtype(value.dtype, np.floating):
            stored[name] = value.astype(np.float16)
    buffer = io.BytesIO()
    np.savez(buffer, **stored)
    coder = zlib.compressobj(9, strategy=zlib.Z_HUFFMAN_ONLY)
    out.write_bytes(coder.compress(buffer.getvalue()) + coder.flush())
    print(f"{sum(v.size for v in stored.values()) / 1e6:.1f} M numbers, {out.stat().st_size / 2**20:.1f} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=("sets", "groups", "weights"))
    parser.add_argument("source", type=Path)
    parser.add_argument("work", type=Path)
    given = parser.parse_args()
    {"sets": sets, "groups": groups, "weights": weights}[given.part](given.source, given.work)


if __name__ == "__main__":
    main()
