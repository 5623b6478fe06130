"""What `liebig build` gives on corpora with judged questions, over the untrained hybrid: one build per set and seed.

    python experiments/adaptation/builds.py DATA OUT --sets medquad scifact squad --split dev --seeds 0 1 2
    python experiments/adaptation/builds.py DATA OUT --sets medquad --minutes 3      # trains on the corpus
    python experiments/adaptation/builds.py DATA OUT --sets medquad --labels 100     # questions of the train split
    python experiments/adaptation/builds.py DATA OUT --sets medquad --teacher MODEL  # a larger encoder
    python experiments/adaptation/builds.py DATA OUT --sets medquad --reranker MODEL # a cross-encoder

DATA holds BEIR folders. A build sees the corpus alone (and the labels or the teacher it is given); its folder is then
asked the questions of the split: as it answers (what the build chose), and every other system that it compared. Where a
set's train split is asked, or there is none, labels are some questions of the first split, and the others are asked.
Each build is a line of OUT/builds.jsonl, and of several splits each is one; OUT/NAME.npz has the values of every
question. With --one-folder the builds of a set follow each other in OUT/SET, so that its passages are encoded once: a
build skips what is up to date.
"""

from __future__ import annotations

import argparse
import json
import lzma
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import liebig
from liebig import encoders as bundled
from liebig.base.records import Query
from liebig.builder import judge as judging
from liebig.builder.check import EncodedOnce
from liebig.builder.judge import BASELINE, SystemChoice, SystemJudge
from liebig.builder.questions import OWN, Question
from liebig.builder.runner import Builder, encode_passages, encode_sentences
from liebig.search.retriever import Retriever
from liebig.search.systems import open_system

DEV = {"scifact": "train", "medquad": "dev", "squad": "dev", "cosqa": "dev"}
Values = NDArray[np.float64]


def rows(path: Path) -> list[dict[str, Any]]:
    """A file of JSON lines, which may be compressed."""
    with (lzma.open if path.suffix == ".xz" else open)(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def judged(folder: Path, split: str) -> list[Question]:
    """The questions of a split with what answers them."""
    texts = {row["_id"]: row["text"] for row in rows(folder / "queries.jsonl.xz")}
    there = {row["_id"] for row in rows(folder / "corpus.jsonl.xz")}
    relevant: dict[str, list[str]] = {}
    for line in (folder / "qrels" / f"{split}.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        query, passage, grade = line.split("\t")[:3]
        if int(grade) > 0 and passage in there:
            relevant.setdefault(query, []).append(passage)
    return [Question(texts[id], tuple(passages), OWN) for id, passages in relevant.items()]


def drawn(questions: list[Question], most: int | None) -> list[Question]:
    """Of many questions the same few each time."""
    if most is None or len(questions) <= most:
        return questions
    return [questions[i] for i in sorted(np.random.default_rng(0).permutation(len(questions))[:most])]


def labels_of(
    folder: Path, asked: dict[str, list[Question]], count: int, seed: int
) -> tuple[list[Question], dict[str, list[Question]]]:
    """Some questions to train on, and those of every split that are asked: never the same ones."""
    if not count:
        return [], asked
    train = folder / "qrels" / "train.tsv"
    known = {question.text for questions in asked.values() for question in questions}
    pool = judged(folder, "train") if train.is_file() else []
    pool = [question for question in pool if question.text not in known] or next(iter(asked.values()))
    chosen = np.random.default_rng(seed).permutation(len(pool))[:count]
    labels = [pool[i] for i in chosen]
    texts = {question.text for question in labels}
    left = {split: [one for one in questions if one.text not in texts] for split, questions in asked.items()}
    return labels, left


def values_of(retriever: Retriever, asked: list[Question], name: str | None = None) -> Values:
    """nDCG@10 of a system of the folder: the one that it answers with, if none is named."""
    judge = SystemJudge(asked)
    generation = retriever.current
    system = generation.systems()[generation.name_of(name)]
    queries = [Query(str(i), question.text) for i, question in enumerate(asked)]
    return judge.measure(system.search(queries, judging.DEPTH))


def others_of(
    out: Path, retriever: Retriever, chosen: str, asked: list[Question], encoders: dict[str, Path]
) -> SystemJudge:
    """Every system that the build compared, asked the same questions against the whole corpus.

    The vectors of the encoder that was chosen are in the retriever's folder, the others are made here.
    """
    out.mkdir(parents=True, exist_ok=True)
    builder, encoded = Builder(out, lambda line: None), EncodedOnce()
    folder, now = retriever.folder, retriever.current.description
    collection = folder / now.collection
    judge = SystemJudge(asked)
    judge.ask("bm25", open_system(folder / str(now.bm25)))
    for name, model in encoders.items():
        there = (now.index, now.sentences) if name == chosen and now.query is None else (None, None)
        passages, sentences = (None if part is None else folder / part for part in there)
        passages = passages or encode_passages(builder, f"all-{name}", collection, model)
        sentences = sentences or encode_sentences(builder, f"all-{name}-sentences", collection, model)
        judge.ask(name, encoded.system(passages, model))
        judge.ask_sentences(name, [encoded.sentences(sentences, model)])
    if judging.TEACHER in encoders and (student := encoders.get("student-100")) is not None:
        work = out / "work"
        judge.ask(judging.ASYMMETRIC, open_system(work / f"all-{judging.TEACHER}", model=student))
        of_sentences = encoded.sentences(work / f"all-{judging.TEACHER}-sentences", student)
        judge.ask_sentences(judging.ASYMMETRIC, [of_sentences])
    return judge


def compared_by(work: Path, given: argparse.Namespace) -> dict[str, Path]:
    """The encoders that a build compared, by the names that the check has for them."""
    found = {judging.START: bundled.folder() if given.model is None else Path(given.model)}
    made = {
        "trained": "mean",
        "student-50": "student-50",
        "student-100": "student-100",
        OWN: "learnt",
    }
    found |= {name: work / stage / "model" for name, stage in made.items() if (work / stage).is_dir()}
    return found | ({judging.TEACHER: Path(given.teacher)} if given.teacher else {})


def one(data: Path, out: Path, name: str, seed: int, given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A build, and a row for every split that it is asked."""
    folder = data / name
    splits = [DEV.get(name) if split == "dev" else split for split in given.split]
    every = {split: drawn(judged(folder, split), given.most) for split in splits if split is not None}
    if not every:
        raise SystemExit(f"{name} has no development questions: ask --split test")
    labels, asked = labels_of(folder, every, given.labels, seed)
    place = out / (name if given.one_folder else f"{name}-{given.name}-{seed}")
    place.parent.mkdir(parents=True, exist_ok=True)
    fields: dict[str, Any] = {"minutes": given.minutes, "seed": seed}
    if labels:
        file = out / f"{name}-{given.name}-{seed}.questions.jsonl"
        lines = [json.dumps({"question": q.text, "relevant": list(q.passages)}) + "\n" for q in labels]
        file.write_text("".join(lines), encoding="utf-8")
        fields["questions"] = str(file)
    if given.teacher:
        fields |= {"teacher": given.teacher, "texts": given.texts}
    if given.model:
        fields["model"] = given.model
    if given.reranker:
        fields |= {"reranker": given.reranker, "rerank_depth": given.depth, "rerank_int8": False}
    began = time.time()
    result = liebig.build(str(folder / "corpus.jsonl.xz"), place / "retriever", **fields)
    took = time.time() - began
    compared = compared_by(place / "retriever" / "work", given)
    for split, questions in asked.items():
        file = out / ("-".join([name, given.name, *([split] if len(asked) > 1 else []), str(seed)]) + ".npz")
        row = asked_of(result, place / "all", questions, compared, file)
        facts = {"set": name, "split": split, "arm": given.name, "seed": seed, "labels": len(labels)}
        yield {**facts, "seconds": round(took), **row}
    shutil.rmtree(place / "all", ignore_errors=True)
    if not (given.keep or given.one_folder):
        shutil.rmtree(place, ignore_errors=True)


def asked_of(
    result: liebig.BuildResult, out: Path, asked: list[Question], compared: dict[str, Path], file: Path
) -> dict[str, Any]:
    """What a build answers with, and everything it compared, on some questions; their values in a file."""
    retriever, choice = result.retriever, SystemChoice(**result.checks["choice"])
    chosen = values_of(retriever, asked)
    judge = others_of(out, retriever, choice.encoder, asked, compared)
    of_asked = judge.spread(choice.encoder)
    judge.scales = {choice.encoder: retriever.current.description.spread}  # as it is served
    systems = [SystemChoice(system="bm25"), *(SystemChoice(e, "dense") for e in judge.encoders)]
    systems += [BASELINE, *(SystemChoice(e).as_deployed for e in judge.encoders)]
    systems += [choice] if choice.system != "reranked" else []  # the retriever is asked for that
    systems += [SystemChoice(e, sentences=True).as_deployed for e in judge.encoders if e in judge.sentences]
    values = {system.name: judge.values(system) for system in systems}
    base = judge.values(BASELINE)
    reranked = [row["name"] for row in result.checks["rows"] if row["name"].endswith(", reranked")]
    values |= {name: values_of(retriever, asked, "reranked") for name in reranked}
    np.savez_compressed(file, chosen=chosen, **values)
    gain = chosen - base
    return {
        "questions": len(asked), "chosen": choice.name, "weight": choice.weight,
        "value": float(chosen.mean()), "baseline": float(base.mean()), "gain": float(gain.mean()),
        "error": float(gain.std() / len(gain) ** 0.5),
        "spread": retriever.current.description.spread, "spread_of_asked": of_asked,
        "systems": {n: round(float(v.mean()), 4) for n, v in values.items()},
        "compared": [
            {"system": row["name"], "predicted": row["difference"], "expected": row["expected"],
             "true": asdict(judge.difference(values[row["name"]], base))}
            for row in result.checks["rows"]
            if "expected" in row and row["name"] in values
        ],
    }  # fmt: skip


def arguments(about: str | None) -> argparse.ArgumentParser:
    """DATA OUT --sets SET ..., with a script's docstring as help."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--sets", nargs="+", required=True)
    return parser


def main() -> None:
    parser = arguments(__doc__)
    parser.add_argument(
        "--split", nargs="+", default=["dev"], help="dev (scifact: its train split), test, or both [dev]"
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--most", type=int, help="questions of a split that are asked [default: all]")
    parser.add_argument("--labels", type=int, default=0, help="judged questions that the build is given")
    parser.add_argument("--teacher", default=None, help="a model's folder")
    parser.add_argument("--texts", help="short texts that the student learns from too")
    parser.add_argument("--reranker", default=None, help="a cross-encoder's folder")
    parser.add_argument("--depth", type=int, default=30, help="hits that it orders")
    parser.add_argument("--model", default=None, help="the start [default: the bundled encoder]")
    parser.add_argument("--minutes", type=float, help="of training on the corpus [default: as liebig build]")
    parser.add_argument("--name", default="plain", help="of this arm, for its files")
    parser.add_argument("--keep", action="store_true", help="keep the folders of the builds")
    parser.add_argument("--one-folder", action="store_true", help="build a set's arms in one folder, kept")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for name in given.sets:
        for seed in given.seeds:
            for row in one(given.data, given.out, name, seed, given):
                with (given.out / "builds.jsonl").open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
                print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
