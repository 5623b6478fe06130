"""What `train.py` reads, as files in folders of at most 34.5 MiB: texts, teachers, evaluation sets with BM25's answers.

    python experiments/encoders/v3/prepare.py vocabulary --data DATA --work WORK
    python experiments/encoders/v3/prepare.py sets --data DATA --work WORK
    python experiments/encoders/v3/prepare.py texts --data DATA --work WORK
    python experiments/encoders/v3/prepare.py chunks --work WORK --teachers DIR --out OUT

`vocabulary` adds `--words` words to the tokenizer of `--start` that save most tokens on DATA/general, and takes out
the tokens that save least until `--keep` are left (6,144 and 24,576 for mini-v3, from mini-v2's 30,528). WORK/student
also needs the tokenizer.json of bert-base-uncased as bert-tokenizer.json. `sets` reads every evaluation set with Liebig
and asks BM25 its questions. `texts` copies DATA/general and a sixth of Wikipedia, and adds a sample of the Windows
documentation and the training questions of SQuAD and NQ. `chunks` divides all of it, in the order of use.
"""

from __future__ import annotations

import argparse
import json
import lzma
import random
import re
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
START = ROOT / "src" / "liebig" / "encoders" / "mini-v3"
CHUNK = 69 * 1024**2 // 2
RARE = 12  # words that are seen less often are not added
EVERY = 4  # one of so many rows is counted
WORD = re.compile(r"[a-z]{3,24}")
DEV = ("medquad", "scifact", "cranfield", "squad", "cosqa")
TEST = (*DEV, "vaswani", "trec-dl21", "semeval-cqa")
PAGES = 3000


def rows(path: Path) -> Iterator[dict[str, Any]]:
    with lzma.open(path, "rt", encoding="utf-8") as file:
        yield from map(json.loads, file)


def write(path: Path, values: Iterator[Any] | list[Any]) -> None:
    with lzma.open(path, "wt", encoding="utf-8", preset=5) as file:
        file.writelines(
            json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n" for value in values
        )
    print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB", flush=True)


def pieces(word: str, known: dict[str, int]) -> list[str]:
    """The longest tokens, one behind the other, that WordPiece makes of a word or of a `##` part."""
    prefix = "##" if word.startswith("##") and len(word) > 2 else ""
    rest, cut = word.removeprefix(prefix), []
    while rest:
        size = next((n for n in range(len(rest), 0, -1) if prefix + rest[:n] in known), 0)
        if not size:
            return ["[UNK]"]
        cut.append(prefix + rest[:size])
        rest, prefix = rest[size:], "##"
    return cut


def shrink(known: dict[str, int], counts: Counter[str], keep: int, rounds: int = 5) -> dict[str, int]:
    """The vocabulary without the tokens that save least; single characters and special tokens stay."""
    left, size = dict(known), len(known)
    for step in range(1, rounds + 1):
        used: Counter[str] = Counter()
        for word, count in counts.items():
            for piece in pieces(word, left):
                used[piece] += count
        saved = {}
        for token in [
            t for t in left if len(t.removeprefix("##")) > 1 and not (t[0] == "[" and t[-1] == "]")
        ]:
            number = left.pop(token)
            saved[token] = (used[token] * (len(pieces(token, left)) - 1), -number)
            left[token] = number
        goal = round(size + (keep - size) * step / rounds)
        for token in sorted(saved, key=saved.__getitem__)[: max(0, len(left) - goal)]:
            del left[token]
        print(f"{len(left)} tokens", flush=True)
    return {token: number for number, token in enumerate(sorted(left, key=known.__getitem__))}


def vocabulary(data: Path, work: Path, start: Path, more: int, keep: int) -> None:
    """The start's tokenizer with the words that save most tokens, and without those that save least."""
    from tokenizers import Tokenizer

    counts: Counter[str] = Counter()
    for path in sorted((data / "general").glob("*.xz")):
        with lzma.open(path, "rt", encoding="utf-8") as file:
            for number, line in enumerate(file):
                if number % EVERY == 0:
                    row = json.loads(line)
                    counts.update(WORD.findall((row.get("title", "") + " " + row["text"]).lower()))
    tokenizer = Tokenizer.from_file(str(start / "tokenizer.json"))
    saved = {}
    for word, count in counts.items():
        if count >= RARE:
            pieces = len(tokenizer.encode(word, add_special_tokens=False).ids)
            if pieces > 1:
                saved[word] = count * (pieces - 1)
    chosen = sorted(saved, key=lambda word: (-saved[word], word))[:more]
    tree = json.loads((start / "tokenizer.json").read_text(encoding="utf-8"))
    known = tree["model"]["vocab"]
    known.update({word: number for number, word in enumerate(chosen, len(known))})
    if keep:
        everything: Counter[str] = Counter()
        for path in sorted((data / "general").glob("*.xz")):
            with lzma.open(path, "rt", encoding="utf-8") as file:
                for number, line in enumerate(file):
                    if number % (4 * EVERY) == 0:
                        row = json.loads(line)
                        text = tokenizer.normalizer.normalize_str(row.get("title", "") + " " + row["text"])
                        everything.update(word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(text))
        tree["model"]["vocab"] = known = shrink(known, everything, keep)
    target = work / "student"
    shutil.copytree(start, target, dirs_exist_ok=True)
    (target / "tokenizer.json").write_text(json.dumps(tree, ensure_ascii=False), encoding="utf-8")
    total = sum(saved.values())
    print(
        f"{len(chosen)} words more, {len(known)} tokens; they save {sum(saved[w] for w in chosen) / 1e6:.2f} M "
        f"of {total / 1e6:.2f} M further pieces"
    )
    print(" ".join(chosen[:40]), "…", " ".join(chosen[-20:]))


def sets(data: Path, work: Path) -> None:
    """Every evaluation set: passages, and of each split questions, judgements and the best 100 by BM25."""
    sys.path.append(str(HERE.parent))
    import evaluate as judge

    target = work / "sets"
    target.mkdir(parents=True, exist_ok=True)
    for name in TEST:
        if (target / f"{name}.jsonl.xz").exists():
            continue
        values: list[Any] = []
        for split in ("dev", "test"):
            if split == "dev" and name not in DEV:
                continue
            one = judge.read_set(data, name, split, work / "bm25")
            places = {passage.id: number for number, passage in enumerate(one.passages)}
            if not values:
                values.append([f"{passage.title} {passage.text}".strip() for passage in one.passages])
            values.append(split_of(data, name, split, one, places, work))
        write(target / f"{name}.jsonl.xz", values)
    for split in ("dev", "test"):
        shutil.copyfile(data / "stsb" / f"{split}.csv.xz", target / f"stsb-{split}.csv.xz")


def split_of(
    data: Path, name: str, split: str, one: Any, places: dict[str, int], work: Path
) -> dict[str, Any]:
    """A split's questions, what is relevant to each, and BM25's answers."""
    import splits

    folder = splits.folder(data, name, work / "splits")
    grades: dict[str, dict[int, int]] = {}
    for line in (folder / "qrels" / f"{split}.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        query, passage, grade = line.split("\t")
        if int(grade) > 0:
            grades.setdefault(query, {})[places[passage]] = int(grade)
        else:
            grades.setdefault(query, {})
    return {
        "split": split,
        "queries": [query.text for query in one.queries],
        "grades": [list(map(list, grades[query.id].items())) for query in one.queries],
        "bm25": [[[places[id], round(score, 4)] for id, score in hits] for hits in one.bm25],
    }


def paragraphs(text: str, rng: random.Random) -> Iterator[str]:
    """Passages of whole paragraphs, of up to some length."""
    part: list[str] = []
    limit = rng.choice((500, 900, 1400, 2000))
    for line in filter(None, (piece.strip() for piece in text.split("\n"))):
        if line.startswith(("#", "|", "```")):
            continue
        if part and sum(map(len, part)) + len(line) > limit:
            yield "\n".join(part)
            part, limit = [], rng.choice((500, 900, 1400, 2000))
        part.append(line[:limit])
    if part:
        yield "\n".join(part)


def texts(data: Path, work: Path) -> None:
    """Files of texts, each `{"text", "title"?, "kind"}`; articles of Wikipedia stay as they are."""
    target = work / "texts"
    target.mkdir(parents=True, exist_ok=True)
    for path in sorted((data / "general").glob("*.xz")):
        shutil.copyfile(path, target / path.name)
    shutil.copyfile(data / "wiki" / "articles-0.jsonl.xz", target / "wiki.jsonl.xz")
    rng = random.Random(3)
    pages = list(rows(data / "win32" / "docs.jsonl.xz"))
    write(target / "win32.jsonl.xz", [
        {"text": part, "title": page["title"], "kind": "passage"}
        for page in rng.sample(pages, PAGES) for part in list(paragraphs(page["text"], rng))[:4] if len(part) > 80
    ])  # fmt: skip
    del pages
    wanted = {
        line.split("\t")[0] for line in (data / "squad" / "qrels" / "train.tsv").read_text().splitlines()[1:]
    }
    asked = [row["text"] for row in rows(data / "squad" / "queries.jsonl.xz") if row["_id"] in wanted]
    asked += [row["text"] for row in rows(data / "nq" / "train.jsonl.xz")]
    write(target / "nq_squad_questions.jsonl.xz", [{"text": text, "kind": "question"} for text in asked])


def chunks(work: Path, teachers: Path, out: Path) -> None:
    """Everything in folders of at most CHUNK bytes; a file that does not fit is cut into parts."""
    for old in out.glob("c[0-9]*"):
        shutil.rmtree(old)
    first = [*(path for path in sorted((work / "student").rglob("*")) if path.is_file())]
    first = [path for path in first if path.name in ("tokenizer.json", "bert-tokenizer.json")]
    files = [(f"student/{path.relative_to(work / 'student')}", path) for path in first]
    files += [
        (f"texts/{path.name}", path)
        for path in sorted((work / "texts").glob("*.xz"), key=lambda p: -p.stat().st_size)
    ]
    files += [(f"sets/{path.name}", path) for path in sorted((work / "sets").glob("*.xz"))]
    files += [
        (f"teachers/{name}.npz.z", teachers / f"{name}.npz.z") for name in ("minilm", "bge", "e5", "mpnet")
    ]
    number, room, names = 0, CHUNK, []
    for name, path in files:
        rest = path.read_bytes()
        names.append([name, len(rest)])
        part = 0
        while True:
            piece, rest = rest[:room], rest[room:]
            target = out / f"c{number}" / f"{name}.{part:03d}"
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(piece)
            room -= len(piece)
            part += 1
            if room < 4096:
                number, room = number + 1, CHUNK
            if not rest:
                break
    (out / "files.json").write_text(json.dumps({"files": names, "chunks": number + 1}))
    for folder in sorted(out.glob("c[0-9]*")):
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        print(
            folder.name,
            f"{size / 1024**2:.2f} MiB",
            sorted({str(p.relative_to(folder)).split(".")[0] for p in folder.rglob("*") if p.is_file()}),
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("vocabulary", "sets", "texts", "chunks"))
    parser.add_argument("--data", type=Path, default=Path("data"))
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--start", type=Path, default=START)
    parser.add_argument("--words", type=int, default=0, help="vocabulary: how many words to add")
    parser.add_argument("--keep", type=int, default=0, help="vocabulary: how many tokens are left, 0 for all")
    parser.add_argument("--teachers", type=Path)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    args.work.mkdir(parents=True, exist_ok=True)
    if args.part == "chunks":
        chunks(args.work, args.teachers, args.out)
    elif args.part == "vocabulary":
        vocabulary(args.data, args.work, args.start, args.words, args.keep)
    else:
        {"sets": sets, "texts": texts}[args.part](args.data, args.work)


if __name__ == "__main__":
    main()
