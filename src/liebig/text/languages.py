"""Which language a text is in, without a network, and what is known of each language by its code.

`detect` looks at the first words: the script decides for Chinese, Japanese, Korean and Thai, the share of stop words
for most texts in a language that has a list of them, and py3langid (a naive Bayes classifier over bytes) for the rest.
What is too short or too uncertain has no language, because a wrong stemmer costs more than the one of the texts around
it. Cost: some 30 µs per text, about a millisecond where py3langid decides.

stop_words.json has the stop words of bm25s 0.3 (MIT license, copyright 2024 Xing Han Lu), by language.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from functools import cache
from importlib import resources
from typing import Any

from liebig.base.records import Document, Passage

NAMES = {
    "ar": "arabic", "hy": "armenian", "eu": "basque", "ca": "catalan", "zh": "chinese", "cs": "czech", "da": "danish",
    "nl": "dutch", "en": "english", "eo": "esperanto", "et": "estonian", "fi": "finnish", "fr": "french",
    "de": "german", "el": "greek", "hi": "hindi", "hu": "hungarian", "id": "indonesian", "ga": "irish",
    "it": "italian", "ja": "japanese", "ko": "korean", "lt": "lithuanian", "ne": "nepali", "no": "norwegian",
    "fa": "persian", "pl": "polish", "pt": "portuguese", "ro": "romanian", "ru": "russian", "sr": "serbian",
    "es": "spanish", "sv": "swedish", "ta": "tamil", "th": "thai", "tr": "turkish", "yi": "yiddish",
    "bg": "bulgarian", "hr": "croatian", "he": "hebrew", "sk": "slovak", "sl": "slovenian", "uk": "ukrainian",
    "vi": "vietnamese",
}  # fmt: skip
"""Languages that are told apart, by code; those behind Yiddish have no stemmer."""
CODES = {name: code for code, name in NAMES.items()}

SAMPLE = 1200  # characters of a text that are looked at
CLASSIFIED = 500  # characters that py3langid gets, whose time grows with them
WORDS = 200
FEWEST_WORDS, FEWEST_LETTERS = 6, 24  # shorter texts have no language
FEWEST_STOPS, STOP_SHARE, STOP_LEAD = 4, 0.1, 1.5  # of the different words, and over the next language
ENGLISH = (  # what the short list of English lacks
    "you your can what how do does did have has had from he she we our my me his her him who which when where why "
    "about than would could should were been being also after all any because before between both each its more most "
    "other only out over same so some them through under until up while get use used return returns"
)
CONFIDENCE = 0.95  # of py3langid
SCRIPTS = {
    "ja": re.compile("[\u3040-\u30ff\u31f0-\u31ff]"),
    "ko": re.compile("[\u1100-\u11ff\u3130-\u318f\uac00-\ud7af]"),
    "th": re.compile("[\u0e01-\u0e5b]"),
    "zh": re.compile("[\u3400-\u4dbf\u4e00-\u9fff]"),
}
WORD = re.compile(r"[^\W\d_]+")


def code_of(name: str) -> str:
    """The code of a language given by code, name or tag ("de", "German", "de-AT"); "" for any other text."""
    name = name.strip().lower()
    tag = re.split(r"[-_]", name)[0]
    return CODES.get(name) or (tag if tag in NAMES else "")


def stop_words(language: str) -> frozenset[str]:
    """The stop words of a language by its name; none if there is no list."""
    return frozenset(_stop_lists().get(language, ()))


@cache
def _stop_lists() -> dict[str, list[str]]:
    path = resources.files("liebig.text").joinpath("stop_words.json")
    lists: dict[str, list[str]] = json.loads(path.read_text(encoding="utf-8"))
    return lists


def detect(text: str) -> str:
    """The code of a text's language; "" where it is too short or uncertain."""
    sample = text[:SAMPLE]
    words = WORD.findall(sample.lower())[:WORDS]
    if (code := _by_script(sample)) or sum(map(len, words)) < FEWEST_LETTERS or len(words) < FEWEST_WORDS:
        return code
    return _by_stop_words(words) or _classified(sample[:CLASSIFIED], words)


def language_of(record: Document | Passage) -> str:
    """The language that the source names, else the one that is detected."""
    if isinstance(record, Passage):
        return code_of(record.language) or detect(record.text)
    return code_of(record.metadata.get("language", "")) or detect(_beginning(record))


def _beginning(document: Document) -> str:
    """The first characters of a document, without joining all of a long one."""
    parts, size = [], 0
    for section in document.sections:
        for text in (section.heading, *section.paragraphs):
            parts.append(text)
            size += len(text)
            if size > SAMPLE:
                return "\n".join(parts)
    return "\n".join(parts)


def _by_script(sample: str) -> str:
    if sample.isascii():
        return ""
    counts = {code: len(script.findall(sample)) for code, script in SCRIPTS.items()}
    if sum(counts.values()) * 5 < sum(map(str.isalpha, sample)) or not any(counts.values()):
        return ""
    if counts["ja"] * 20 > counts["zh"] and counts["ja"] >= counts["ko"]:  # Japanese is written with Han, too
        return "ja"
    return max(counts, key=counts.__getitem__)


@cache
def _owners() -> dict[str, tuple[str, ...]]:
    """The languages of every stop word, by code; letters are left out, because code and tables are full of them."""
    owners: dict[str, list[str]] = {}
    for name, words in (*_stop_lists().items(), ("english", ENGLISH.split())):
        for word in words:
            if len(word) > 1:
                owners.setdefault(word, []).append(CODES[name])
    return {word: tuple(codes) for word, codes in owners.items()}


def _stop_counts(words: list[str]) -> Counter[str]:
    """How many different stop words of each language a text has."""
    owners = _owners()
    return Counter(code for word in set(words) for code in owners.get(word, ()))


def _by_stop_words(words: list[str]) -> str:
    ranked = _stop_counts(words).most_common(2)
    if not ranked or ranked[0][1] < max(FEWEST_STOPS, STOP_SHARE * len(set(words))):
        return ""
    leads = len(ranked) == 1 or ranked[0][1] >= STOP_LEAD * ranked[1][1]
    return ranked[0][0] if leads else ""


def _classified(sample: str, words: list[str]) -> str:
    code, confidence = _classifier().classify(sample)
    if confidence < CONFIDENCE or code not in NAMES:
        return ""
    # A text has stop words of its language, and more of them than English ones; else it is a table, code or names.
    counts = _stop_counts(words)
    has_list = NAMES[code] in _stop_lists()
    doubtful = code != "en" and counts["en"] >= (counts[code] if has_list else FEWEST_STOPS)
    return "" if doubtful else str(code)


@cache
def _classifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier  # late: its model takes a second to load

    classifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    classifier.set_languages([code for code in classifier.labels if code in NAMES])
    return classifier
