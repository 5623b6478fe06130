"""The texts that mini-v3 learns from: forms of every row, tokenised for the student and for its teachers.

    python texts.py --home HOME

HOME/in has what `prepare.py chunks` wrote: parts of files, joined here; a part that is not there yet is waited for.
A passage gives itself, cuts, sentences, phrases, keywords and titles; code comes with and without its comments.
HOME/store has the tokens of all different texts, one behind the other.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import lzma
import os
import random
import re
import time
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

LONGEST = 512
QUERY, PASSAGE = 1, 0
KINDS = ("passage", "cut", "sentence", "phrase", "keywords", "title", "question", "code", "bare code")
BEGAN = time.time()


def say(*words: Any) -> None:
    print(f"[{time.strftime('%H:%M:%S')} +{time.time() - BEGAN:.0f}]", *words, flush=True)


def expected(home: Path) -> dict[str, int]:
    """The size of every file, by name."""
    return dict(json.loads((home / "in" / "files.json").read_text())["files"])


def joined(home: Path, name: str, patience: float = 900) -> bytes:
    """A file's bytes, once all parts are there."""
    size, until = expected(home)[name], time.time() + patience
    while True:
        parts = sorted((home / "in").glob(f"{name}.[0-9][0-9][0-9]"))
        if sum(part.stat().st_size for part in parts) == size:
            return b"".join(part.read_bytes() for part in parts)
        if time.time() > until:
            raise SystemExit(
                f"{name} is not whole: {sum(p.stat().st_size for p in parts):,} of {size:,} bytes"
            )
        time.sleep(0.5)


def student_folder(home: Path) -> Path:
    """The start's folder, made of its parts."""
    target = home / "student"
    for name in expected(home):
        if name.startswith("student/"):
            path = home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            data = joined(home, name)
            if not path.exists() or path.stat().st_size != len(data):
                temporary = path.with_name(
                    f"{path.name}.{os.getpid()}"
                )  # several commands may do this at once
                temporary.write_bytes(data)
                temporary.rename(path)
    return target


SENTENCE = re.compile(r"(?<=[.!?])[\"')\]]*\s+")
STRING = re.compile(r'("""|\'\'\')(?:.|\n)*?\1')
COMMENT = re.compile(r"(?m)^\s*(?:#|//|/\*|\*).*\n?")
PUNCTUATION = re.compile(r"[^\w\s]+")
STOP = frozenset(
    "a an and are as at be been but by can could did do does for from had has have how i if in into is it its may more "  # noqa: SIM905
    "of on or our should so some such than that the their them then there these they this those to was we were what "
    "when where which who why will with would you your".split()
)
LARGE, SHARE = 1_000_000, 0.65  # of the rows of a large file
WHOLE = 0.65  # how many of the longer passages are learned whole; earlier runs had all
SALT = 3  # other cuts, sentences and phrases than those of the run before
AGAIN = {  # how often more short forms are drawn from a passage: kinds of text the student was behind on, and sentences
    "stackexchange_posts": 4, "plos_articles": 2, "speeches": 2, "recipes": 2, "health_insurance_help": 2,
    "arxiv_abstracts": 1, "acl_abstracts": 1, "elife_biomedical": 1, "us_government_web": 1, "reviews": 2,
    "dialogue_and_intents": 2, "books_standard_ebooks": 2, "wiki": 1, "dictionaries_and_glosses": 1,
}  # fmt: skip


def cut_words(text: str, count: int) -> str:
    """The first words of a text, with what is between them."""
    place = 0
    for number, match in enumerate(re.finditer(r"\S+", text), 1):
        place = match.end()
        if number == count:
            break
    return text[:place]


def plain(text: str) -> str:
    return " ".join(PUNCTUATION.sub(" ", text).split())


class Views:
    """The texts that are made of rows, with kinds and roles."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.before: list[str] = []
        self.texts: list[str] = []
        self.kinds: list[int] = []
        self.roles: list[int] = []

    def add(self, text: str, kind: str, query: float = 0.0, bare: float = 0.0) -> None:
        """A text; `query` is the chance that it plays a question, `bare` that it loses its punctuation."""
        if bare and self.rng.random() < bare:
            text = plain(text)
        text = text.strip()
        if len(text) > 1:
            self.texts.append(text)
            self.kinds.append(KINDS.index(kind))
            self.roles.append(QUERY if self.rng.random() < query else PASSAGE)

    def row(self, text: str, title: str, kind: str, python: bool, again: int = 0) -> None:
        if kind == "question":
            self.add(text, "question", 1.0)
            if self.rng.random() < 0.3:
                self.add(plain(text), "question", 1.0)
            if self.rng.random() < 0.2:
                self.add(self.keywords(text), "keywords", 1.0)
        elif kind == "title":
            self.add(text, "title", 0.5)
        elif kind == "code":
            self.code(text, title, python)
        else:
            self.passage(text, title)
            for _ in range(again):
                self.short(text)

    def short(self, text: str) -> None:
        """Two sentences and a short cut, often without punctuation, as abstracts and forums of old have them."""
        sentences = [one for one in SENTENCE.split(text) if 3 <= one.count(" ") < 60]
        for one in self.rng.sample(sentences, min(len(sentences), 2)):
            self.add(one, "sentence", 0.3, bare=0.25)
            if self.rng.random() < 0.4:
                self.add(self.variant(one), "sentence", 0.2, bare=0.25)
        words = text.split()
        if len(words) > 60 and self.rng.random() < 0.5:
            size = self.rng.randint(12, 50)
            begin = self.rng.randrange(len(words) - size)
            self.add(" ".join(words[begin : begin + size]), "cut", 0.2, bare=0.5)

    def variant(self, text: str) -> str:
        """A sentence without some words, or with some of the one before: what differs a little is graded."""
        words, other = text.split(), self.before
        self.before = words
        if len(words) > 24:  # a clause of it
            begin = self.rng.randrange(len(words) - 12)
            words = words[begin : begin + self.rng.randint(6, 14)]
        out = []
        for word in words:
            draw = self.rng.random()
            if draw < 0.12:
                continue
            out.append(self.rng.choice(other) if draw < 0.2 and other else word)
        return " ".join(out)

    def passage(self, text: str, title: str) -> None:
        draw = self.rng.random
        text = cut_words(text, 330)
        words = text.split()
        if len(words) < 40 or draw() < WHOLE:
            self.add(f"{title} {text}" if title and draw() < 0.4 else text, "passage", bare=0.12)
        if title and draw() < 0.7:
            self.add(title, "title", 0.6, bare=0.2)
        sentences = [one for one in SENTENCE.split(text) if 4 <= one.count(" ") < 70]
        if len(words) > 40:
            for _ in range(1 if len(words) > 90 else int(draw() < 0.6)):
                size = self.rng.randint(15, min(120, len(words) - 10))
                begin = self.rng.randrange(len(words) - size)
                self.add(" ".join(words[begin : begin + size]), "cut", bare=0.25)
        for one in self.rng.sample(sentences, min(len(sentences), 1 + (draw() < 0.6))):
            self.add(one, "sentence", 0.35, bare=0.2)
        if len(words) > 6 and draw() < 0.8:
            size = self.rng.randint(2, min(10, len(words) - 1))
            begin = self.rng.randrange(len(words) - size)
            self.add(plain(" ".join(words[begin : begin + size])), "phrase", 0.7)
        if sentences and draw() < 0.45:
            self.add(self.keywords(self.rng.choice(sentences)), "keywords", 1.0)

    def keywords(self, text: str) -> str:
        """Some of a text's words that carry meaning, in its order."""
        words = [word for word in plain(text).split() if word.lower() not in STOP]
        kept = set(self.rng.sample(range(len(words)), min(len(words), self.rng.randint(2, 9))))
        return " ".join(word for place, word in enumerate(words) if place in kept)

    def code(self, text: str, title: str, python: bool) -> None:
        draw = self.rng.random
        text = text[: self.rng.choice((700, 1400, 2400))]
        self.add(text, "code", bare=0.1)
        bare = COMMENT.sub("", STRING.sub("", text))
        if title:
            self.add(title, "title", 0.7)
        if bare.strip() and bare != text and (title or draw() < 0.5):
            self.add(bare, "bare code")
        if title and draw() < 0.7:
            short = cut_words(plain(title), 12).lower()
            words = [word for word in short.split() if draw() < 0.85 or word not in STOP]
            self.add(" ".join((["python"] if python and draw() < 0.5 else []) + words), "question", 1.0)
        if draw() < 0.2:
            self.add(text.split("\n", 1)[0], "phrase", 0.5)


def repaired(text: str) -> str:
    """A text whose UTF-8 was read as Latin-1, as it was."""
    try:
        return text.encode("latin-1").decode("utf-8") if "\u00e2\u0080" in text else text
    except (UnicodeEncodeError, UnicodeDecodeError):
        return text


def article_passages(row: dict[str, Any], rng: random.Random) -> Iterator[tuple[str, str]]:
    """Passages of an article of Wikipedia, of whole paragraphs, with title and heading."""
    for section in row["sections"]:
        title = f"{row['title']}: {section['h']}" if section["h"] else row["title"]
        part: list[str] = []
        limit = rng.choice((60, 100, 100, 160, 250, 330))
        for paragraph in section["p"]:
            if part and sum(p.count(" ") for p in part) + paragraph.count(" ") > limit:
                yield "\n".join(part), title
                part, limit = [], rng.choice((60, 100, 100, 160, 250, 330))
            part.append(paragraph)
        if part:
            yield "\n".join(part), title


def read_rows(
    data: bytes, name: str, part: int, parts: int, rng: random.Random
) -> Iterator[tuple[str, str, str]]:
    """Text, title and kind of a share of a file's rows."""
    with lzma.open(io.BytesIO(data), "rt", encoding="utf-8") as file:
        for number, line in enumerate(file):
            if number % parts != part or len(data) > LARGE and rng.random() > SHARE:
                continue
            row = json.loads(line)
            if "sections" in row:
                for text, title in article_passages(row, rng):
                    yield text, title, "passage"
            else:
                fix = repaired if "books" in name else str
                yield fix(row["text"]), fix(row.get("title", "")), row["kind"]


def tokenizer_at(path: Path) -> Any:
    """A tokenizer that neither cuts nor pads."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(path))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def tokens_of(path: Path, texts: Sequence[str], longest: int) -> tuple[Any, Any]:
    """Token ids of all texts one behind the other without special ones, and their numbers."""
    tokenizer = tokenizer_at(path)
    tokenizer.enable_truncation(longest - 2)
    encode = getattr(tokenizer, "encode_batch_fast", tokenizer.encode_batch)
    flat, lengths = [], []
    for begin in range(0, len(texts), 2048):
        rows = [one.ids for one in encode(list(texts[begin : begin + 2048]), add_special_tokens=False)]
        lengths += [len(row) for row in rows]
        flat.append(np.fromiter((i for row in rows for i in row), np.uint16, sum(map(len, rows))))
    return np.concatenate(flat) if flat else np.zeros(0, np.uint16), np.array(lengths, np.int32)


TOKENS: dict[tuple[str, int], tuple[Any, Any, Any]] = {}  # of texts that are encoded again and again


def tokens_again(path: Path, texts: Sequence[str]) -> tuple[Any, Any]:
    """The same, kept for the next time."""
    key = str(path), id(texts)
    if key not in TOKENS:
        TOKENS[key] = (texts, *tokens_of(path, texts, LONGEST))  # holding the texts keeps their id theirs
    return TOKENS[key][1:]


def assemble_part(task: tuple[Path, str, int, int, int]) -> str:
    """Worker: the texts of a share of a file, tokenised twice."""
    home, name, part, parts, limit = task
    target = home / "shards" / f"{Path(name).name.split('.')[0]}-{part}.npz"
    if target.exists():
        return f"{target.stem}: there"
    again = AGAIN.get(Path(name).name.split(".")[0], 0)
    views = Views(zlib.crc32(f"{SALT} {name} {part}".encode()))
    data = joined(home, name)
    for number, (text, title, kind) in enumerate(read_rows(data, name, part, parts, views.rng)):
        if limit and number >= limit:
            break
        views.row(text, title, kind, "python" in name, again)
    hashes = np.array(
        [int.from_bytes(hashlib.blake2b(f"{r}{t.lower()}".encode(), digest_size=8).digest(), "little")
         for t, r in zip(views.texts, views.roles)], np.uint64,
    )  # fmt: skip
    own, own_lengths = tokens_of(home / "student" / "tokenizer.json", views.texts, LONGEST)
    bert, bert_lengths = tokens_of(home / "student" / "bert-tokenizer.json", views.texts, LONGEST)
    arrays = {
        "own": own, "own_lengths": own_lengths, "bert": bert, "bert_lengths": bert_lengths, "hashes": hashes,
        "kinds": np.array(views.kinds, np.uint8), "roles": np.array(views.roles, np.uint8),
    }  # fmt: skip
    temporary = target.with_suffix(".part.npz")
    np.savez(temporary, **arrays)
    temporary.rename(target)
    return f"{target.stem}: {len(views.texts):,} texts, {len(own):,} tokens"


def assemble(home: Path, workers: int, limit: int) -> None:
    """All texts, by all processors."""
    (home / "shards").mkdir(parents=True, exist_ok=True)
    (home / "out").mkdir(exist_ok=True)
    student_folder(home)
    sizes = {name: size for name, size in expected(home).items() if name.startswith("texts/")}
    tasks = []
    for name, size in sizes.items():  # in the order in which they come
        parts = max(1, round(size / 1.6e6)) if not limit else 1
        tasks += [(home, name, part, parts, limit) for part in range(parts)]
    # The shards are merged in the order of the tasks, so numbers of texts do not depend on timing.
    with get_context("fork").Pool(workers) as pool:
        for done, word in enumerate(pool.imap_unordered(assemble_part, tasks), 1):
            if done % 16 == 0 or done == len(tasks) or limit:
                say(f"{done} of {len(tasks)}:", word)
    names = [f"{Path(name).name.split('.')[0]}-{part}" for _, name, part, _, _ in tasks]
    merge(home, names)


def merge(home: Path, names: Sequence[str]) -> None:
    """All shards as one store, every text once."""
    shards = [dict(np.load(home / "shards" / f"{name}.npz")) for name in names]
    hashes = np.concatenate([shard["hashes"] for shard in shards])
    _, first = np.unique(hashes, return_index=True)
    keep = np.zeros(len(hashes), bool)
    keep[first] = True
    for shard, mask in zip(shards, np.split(keep, np.cumsum([len(s["hashes"]) for s in shards])[:-1])):
        mask &= (shard["own_lengths"] > 0) & (shard["bert_lengths"] > 0)
    store = home / "store"
    store.mkdir(exist_ok=True)
    start = 0
    columns: dict[str, list[Any]] = {name: [] for name in Store.__dataclass_fields__}
    for shard in shards:
        count = len(shard["hashes"])
        mask = keep[start : start + count]
        for kind in ("own", "bert"):
            columns[kind].append(shard[kind][np.repeat(mask, shard[f"{kind}_lengths"])])
        for name in ("own_lengths", "bert_lengths", "kinds", "roles"):
            columns[name].append(shard[name][mask])
        start += count
    for name, parts in columns.items():
        np.save(store / f"{name}.npy", np.concatenate(parts))
    kinds, lengths = (np.concatenate(columns[name]) for name in ("kinds", "own_lengths"))
    bert = np.concatenate(columns["bert_lengths"])
    say(
        f"{len(kinds):,} texts of {len(keep):,}, {lengths.sum() / 1e6:.1f} M tokens of ours, "
        f"{bert.sum() / 1e6:.1f} M of BERT's"
    )
    print("| kind | texts | tokens each | questions |\n| --- | --- | --- | --- |")
    roles = np.concatenate(columns["roles"])
    for number, kind in enumerate(KINDS):
        mask = kinds == number
        if mask.any():
            print(f"| {kind} | {mask.sum():,} | {lengths[mask].mean():.1f} | {roles[mask].mean():.2f} |")
    (store / "done").write_text("")


@dataclass
class Store:
    """All texts: flat tokens with bounds."""

    own: Any
    own_lengths: Any
    bert: Any
    bert_lengths: Any
    roles: Any
    kinds: Any

    def some(self, rows: Any) -> Store:
        """The texts of some rows, in their order."""
        kept = np.zeros(len(self), bool)
        kept[rows] = True
        flat = {n: getattr(self, n)[np.repeat(kept, getattr(self, f"{n}_lengths"))] for n in ("own", "bert")}
        return Store(
            flat["own"],
            self.own_lengths[kept],
            flat["bert"],
            self.bert_lengths[kept],
            self.roles[kept],
            self.kinds[kept],
        )

    @classmethod
    def open(cls, home: Path, patience: float = 900) -> Store:
        until = time.time() + patience
        while not (home / "store" / "done").exists():
            if time.time() > until:
                raise SystemExit("no texts: run assemble")
            time.sleep(0.5)
        return cls(*(np.load(home / "store" / f"{name}.npy") for name in cls.__dataclass_fields__))

    def __len__(self) -> int:
        return len(self.roles)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--limit", type=int, default=0, help="rows of each file, for a trial")
    args = parser.parse_args()
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # there are processes
    assemble(args.home, args.workers, args.limit)


if __name__ == "__main__":
    main()
