"""Sentence splitters side by side: characters per second on one text, and accuracy on a list of hard cases.

    python bench/sentences.py [--text articles.jsonl.xz] [--characters 400000]

Ours against pysbd and syntok, on the same characters in the same process, one core; a peer that is not installed
is printed as absent. The hard list is the one the tests hold (every sentence of a case must be right), so ours is
right on it by construction: the column shows what the list asks of the others. Last line: our speed over that of
the fastest peer.
"""

from __future__ import annotations

import argparse
import json
import lzma
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from liebig.base.records import Document
from liebig.formats.stdlib import read_stdlib
from liebig.text import sentences

Splitter = Callable[[str, str], list[str]]
ROOT = Path(__file__).resolve().parent.parent
PYSBD = {"en", "hi", "mr", "zh", "es", "am", "ar", "hy", "bg", "ur", "ru", "pl", "fa", "nl", "da", "fr", "my"} | {
    "el", "it", "ja", "de", "kk", "sk"
}  # fmt: skip
SCRIPTS = {"Han": "zh", "Japanese": "ja", "Devanagari": "hi", "Arabic": "ar", "Armenian": "hy", "Ethiopic": "am",
           "Greek": "el", "Cyrillic": "ru"}  # fmt: skip


def ours(text: str, language: str) -> list[str]:
    return sentences.split(text, language if language in ("de", "fr", "es", "it", "ru", "hi") else None)


def pysbd() -> Splitter | None:
    try:
        import pysbd as package
    except ImportError:
        return None
    made: dict[str, object] = {}

    def split(text: str, language: str) -> list[str]:
        code = language if language in PYSBD else "en"
        if code not in made:
            made[code] = package.Segmenter(language=code, clean=False)
        return [s.strip() for s in made[code].segment(text)]  # type: ignore[attr-defined]

    return split


def syntok() -> Splitter | None:
    try:
        import syntok.segmenter as package
    except ImportError:
        return None

    def split(text: str, language: str) -> list[str]:
        found = (sentence for paragraph in package.analyze(text) for sentence in paragraph)
        return [text[s[0].offset : s[-1].offset + len(s[-1].value)] for s in found]

    return split


def read(path: Path | None, characters: int) -> list[str]:
    """Paragraphs of a file, or of Python's own documentation, until there are enough characters."""
    texts: list[str] = []
    for text in standard_library() if path is None else paragraphs(path):
        texts.append(text)
        characters -= len(text)
        if characters < 0:
            break
    return texts


def standard_library() -> Iterator[str]:
    for item in read_stdlib("stdlib:"):
        assert isinstance(item.record, Document)
        for section in item.record.sections:
            yield from section.paragraphs


def paragraphs(path: Path) -> Iterator[str]:
    """The texts of a .txt or .jsonl file, plain or .xz."""
    with lzma.open(path, "rt") if path.suffix == ".xz" else path.open() as lines:
        for line in lines:
            yield from strings(json.loads(line)) if ".jsonl" in path.name else [line]


def strings(record: object) -> Iterator[str]:
    """All strings of a record that are long enough to be text."""
    if isinstance(record, str) and len(record) > 80:
        yield record
    elif isinstance(record, dict | list):
        for value in record.values() if isinstance(record, dict) else record:
            yield from strings(value)


def speed(split: Splitter, texts: list[str], least: float = 1.0) -> float:
    """Characters per second of processor time, over at least a second; the first texts warm up."""
    for text in texts[:5]:
        split(text, "en")
    total, start = 0, time.process_time()
    while (elapsed := time.process_time() - start) < least:
        for text in texts:
            split(text, "en")
            total += len(text)
    return total / elapsed


def right(split: Splitter, cases: list[dict[str, str]]) -> int:
    """How many of the hard cases are split as marked."""
    good = 0
    for case in cases:
        language = case.get("language") or SCRIPTS.get(case["script"], "en")
        marked = case["marked"]
        good += split(marked.replace("|", ""), language) == [part.strip() for part in marked.split("|")]
    return good


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--text", type=Path, help="a .txt or .jsonl file, plain or .xz [default: Python's docs]"
    )
    parser.add_argument("--characters", type=int, default=400_000)
    args = parser.parse_args()
    texts = read(args.text, args.characters)
    cases = json.loads((ROOT / "tests/text/hard_sentences.json").read_text(encoding="utf-8"))
    latin = [case for case in cases if case["script"] == "Latin" and "language" not in case]
    print(f"{sum(map(len, texts)):,} characters in {len(texts):,} paragraphs of {args.text or 'stdlib:'}")
    print(f"{'splitter':10} {'M characters/s':>15} {'English right':>16} {'all right':>16}")
    rates = {}
    for name, split in {"ours": ours, "pysbd": pysbd(), "syntok": syntok()}.items():
        if split is None:
            print(f"{name:10} {'absent':>15}")
            continue
        rates[name] = speed(split, texts)
        shares = (f"{right(split, part)} of {len(part)}" for part in (latin, cases))
        print(f"{name:10} {rates[name] / 1e6:15.3f} " + " ".join(f"{share:>16}" for share in shares))
    mine = rates.pop("ours")
    print(f"ratio: {mine / max(rates.values()):.1f}" if rates else "ratio: no peer installed")


if __name__ == "__main__":
    main()
