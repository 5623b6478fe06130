"""A user's own questions, with or without judged passages (`liebig build --questions FILE`).

| file                      | a question                        | what is relevant                                  |
| ------------------------- | --------------------------------- | ------------------------------------------------- |
| JSON lines                | `question`, `query` or `text`     | `relevant`: ids, or ids with grades; or one       |
|                           |                                   | `passage` with its `relevance` (of `liebig label`)|
|                           |                                   | by a language model if there is a `judge`         |
| CSV or TSV                | the first column, or one so named | the second column: an id; the third: a grade      |
| text                      | a line                            | nothing                                           |
| BEIR folder, or its qrels | `queries.jsonl`                   | `qrels/*.tsv`                                     |

An id is that of a passage, of a document, or the path of a file; of the latter two, all passages are relevant. What is
said of a question in several lines is put together, and the last word about a passage counts.

Judged questions are asked beside those made from the corpus (`questions.py`), and count for far more (`decide.py`).
Enough of them also train (`question_training.py`). What a model judged is a question of another kind, MODEL, also
where people judged the same one: people's judgement then says how far the model is off (`judge.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, NamedTuple

import orjson
from pydantic import Field, NonNegativeInt

from liebig.base.config import Config, InputPath, Unrecorded
from liebig.base.errors import DataError
from liebig.base.json_file import FileModel, read_json
from liebig.base.pipeline import Stage
from liebig.base.records import Judgement, Query
from liebig.base.workspace import Folder
from liebig.builder.questions import MODEL, OWN, QUESTIONS, Question, draw_pool
from liebig.collection import Collection
from liebig.collection.writer import CollectionWriter
from liebig.formats import detect
from liebig.formats.inputs import InputSource
from liebig.formats.items import Item, Options, Row, Where, as_grade, as_id, as_list, as_text
from liebig.formats.on_disk import source_of
from liebig.formats.output import json_line, write_lines
from liebig.formats.rows import container_of, csv_rows, rows, text_lines

UNJUDGED, NOTES = "unjudged.jsonl", "notes.json"
POOL = 20_000  # passages they are asked against: all of most corpora
TEXT = ("question", "query", "text")
ONE = ("passage", "document", "doc", "path")
SEVERAL = ("relevant", "passages", "documents", "positives")
GRADE = ("relevance", "grade", "label", "score")
JUDGE = "judge"  # the language model that graded, from 0 to 3
MODEL_RELEVANT = 2  # the least of its grades that says that a passage answers


@dataclass
class UserQuestion:
    """A question, the grades of what people and a model judged for it, by the ids in the file, and where it stands."""

    text: str
    where: Where
    grades: dict[str, int | None] = field(default_factory=dict)  # None: withdrawn
    by_model: dict[str, int | None] = field(default_factory=dict)
    places: dict[str, Where] = field(default_factory=dict)


def read_file(path: Path) -> tuple[list[UserQuestion], list[str]]:
    """The questions of a file or folder, each once, and notes about repeated ones and an incomplete last line."""
    known: dict[str, UserQuestion] = {}
    repeated: list[Where] = []
    notes: list[str] = []
    for text, where, grades, by_model in _whole_entries(path, notes):
        if not text.strip():
            where.refuse("the question is empty", "write one, or remove the line")
        key = " ".join(text.casefold().split())
        question = known.setdefault(key, UserQuestion(text.strip(), where))
        before = question.by_model if by_model else question.grades
        if question.where is not where and grades.items() <= before.items():
            repeated.append(where)
        before |= grades
        question.places |= dict.fromkeys(grades, where)
    if not known:
        raise DataError("there are no questions in it", file=path, fix="write one per line")
    notes += (f"{path}: {count:,} judgements are those of the language model {name}, not of people, and may be wrong."
              for name, count in _model_judgements(path).items())  # fmt: skip
    notes += (f"{path}: {len(repeated):,} lines repeat earlier ones (the first is line {where.line}); each counts once."
              for where in repeated[:1])  # fmt: skip
    return list(known.values()), notes


def _model_judgements(path: Path) -> Counter[str]:
    if path.suffix != ".jsonl":
        return Counter()
    lines = (line for line in path.read_bytes().splitlines() if f'"{JUDGE}"'.encode() in line)
    return Counter(str(row[JUDGE]) for row in map(orjson.loads, lines) if JUDGE in row)


class QuestionEntry(NamedTuple):
    """A question of a file, and who said what of which passages."""

    text: str
    where: Where
    grades: dict[str, int | None]
    by_model: bool = False


def _whole_entries(path: Path, notes: list[str]) -> Iterator[QuestionEntry]:
    """The entries of a file; one whose writing was interrupted at the end is noted, not refused."""
    line = 0
    try:
        for entry in _read(path):
            line = entry.where.line
            yield entry
    except DataError as error:
        last = incomplete_line(path) if path.suffix == ".jsonl" else ""
        if not last or not line or error.line != path.read_bytes().count(b"\n") + 1:
            raise
        notes.append(f"{path}: the last line is incomplete and is left out: {last}")


def incomplete_line(path: Path) -> str:
    """The last line of a file of JSON lines if it has neither an end nor a whole value, "" otherwise."""
    last = path.read_bytes().rpartition(b"\n")[2]
    try:
        orjson.loads(last)
    except orjson.JSONDecodeError:
        return last.decode("utf-8", "replace")
    return ""


def read_texts(path: Path) -> Iterator[str]:
    """The questions alone, one after the other, as often as each is there; empty ones are skipped."""
    return (text for text in (" ".join(entry.text.split()) for entry in _read(path)) if text)


def _read(path: Path) -> Iterator[QuestionEntry]:
    source = source_of(path)
    if source.is_folder or source.parent == "qrels":
        return _beir(path)
    if source.suffix in (".csv", ".tsv"):
        return _table(source, "\t" if source.suffix == ".tsv" else ",")
    if container_of(source) is None:
        return _lines(source)
    return (_row(row, where) for where, row in rows(source))


def _lines(source: InputSource) -> Iterator[QuestionEntry]:
    for number, line in text_lines(source):
        where = Where(source.label, number)
        if source.suffix in (".jsonl", ".json") and line.strip():
            where.refuse("is not JSON", "write an object per line, or name the file .txt")
        yield QuestionEntry(line, where, {})


def _beir(path: Path) -> Iterator[QuestionEntry]:
    """Queries and judgements of a folder, or the judgements of one file below it; the corpus is not read."""
    folder = path if path.is_dir() else path.parent.parent
    files = [path] if path.is_file() else sorted(folder.glob("qrels/*"))
    texts: dict[str, tuple[str, Where]] = {}
    judged: dict[str, dict[str, int | None]] = {}
    places: dict[str, Where] = {}
    for file in [*sorted(folder.glob("queries.jsonl*")), *files]:
        for match in detect(file):
            for record, where, *_ in match.items(Options()):
                if isinstance(record, Query):
                    texts[record.id] = record.text, where
                elif isinstance(record, Judgement):
                    judged.setdefault(record.query, {})[record.passage] = record.relevance
                    places.setdefault(record.query, where)
    if not texts:
        raise DataError("there is no queries.jsonl in it", file=folder, fix="name a file of questions")
    for query in judged if path.is_file() else texts:
        if query not in texts:
            places[query].refuse(f"there is no query {query!r} in queries.jsonl")
        yield QuestionEntry(*texts[query], judged.get(query, {}))


def _table(source: InputSource, delimiter: str) -> Iterator[QuestionEntry]:
    """Columns under names of ours, or question, id and grade in this order."""
    names: list[str] | None = None
    for where, cells in csv_rows(source, delimiter):
        if names is None:
            header = [cell.strip().casefold() for cell in cells]
            has_header = any(name in header for name in TEXT)
            names = header if has_header else [TEXT[0], ONE[0], GRADE[0]]
            if has_header:
                continue
        if len(cells) > len(names):
            where.refuse(f"the line has {len(cells)} columns, not {len(names)}", "quote texts with commas")
        yield _row({name: cell for name, cell in zip(names, cells) if cell.strip()}, where)


def _row(row: Row, where: Where) -> QuestionEntry:
    text = next((row[name] for name in TEXT if name in row), None)
    if text is None:
        where.refuse(
            f"there is no question in it, only {', '.join(row) or 'nothing'}", f"name it {TEXT[0]!r}"
        )
    grades: dict[str, int | None] = {}
    grade = next((row[name] for name in GRADE if name in row), 1)
    if JUDGE in row and grade is not None:
        grade = int(as_grade(grade, where) >= MODEL_RELEVANT)
    for name in (name for name in ONE if name in row):
        grades[as_id(row[name], where)] = None if grade is None else as_grade(grade, where)
    for name in (name for name in SEVERAL if name in row):
        if isinstance(row[name], Mapping):
            grades |= {as_id(id, where): as_grade(one, where) for id, one in row[name].items()}
        elif isinstance(row[name], str):
            grades[as_id(row[name], where)] = 1
        else:
            grades |= {as_id(id, where): 1 for id in as_list(row[name], where, name)}
    return QuestionEntry(as_text(text, where, "question"), where, grades, JUDGE in row)


def judge(
    questions: Sequence[UserQuestion], collection: Collection, sources: Sequence[str], file: Path
) -> tuple[list[Question], list[str], list[str]]:
    """Questions with their relevant passages, texts of those without, and what is worth saying."""
    owners = _passages(collection, {id for q in questions for id in (*q.grades, *q.by_model)}, sources)
    judged: list[Question] = []
    unjudged: list[str] = []
    unanswered = 0
    unknown: dict[str, Where] = {}
    total = 0
    for question in questions:
        answered = is_judged = False
        for kind, given in ((OWN, question.grades), (MODEL, question.by_model)):
            grades: dict[str, int] = {}
            for id, grade in given.items():
                total += 1
                if id not in owners:
                    unknown.setdefault(id, question.places[id])
                elif grade is not None:
                    grades |= dict.fromkeys(owners[id], grade)
            is_judged |= bool(grades)
            if relevant := tuple(id for id, grade in grades.items() if grade > 0):
                against = tuple(id for id, grade in grades.items() if grade <= 0)
                judged.append(Question(question.text, relevant, kind, against=against))
                answered = True
        if is_judged and not answered:
            unanswered += 1
        elif not is_judged:
            unjudged.append(question.text)
    if unknown:
        first, where = next(iter(unknown.items()))
        if len(unknown) == total:
            where.refuse(
                f"none of the judged passages is in the corpus; the first is {first!r}",
                "use ids of passages or documents as liebig search shows them, or paths of files",
            )
        notes = [
            f"{file}: {len(unknown):,} of the judged ids are not in the corpus and are left out; the first is "
            f"{first!r} (line {where.line})."
        ]
    else:
        notes = []
    if unanswered:
        notes.append(
            f"Your questions that no judged passage answers: {unanswered:,}. They compare no systems."
        )
    return judged, unjudged, notes


def once(questions: Sequence[Question]) -> list[Question]:
    """Each question once, as people judged it where they did."""
    by_text: dict[str, Question] = {}
    for question in questions:
        if question.kind == OWN or question.text not in by_text:
            by_text[question.text] = question
    return list(by_text.values())


def _passages(collection: Collection, names: set[str], sources: Sequence[str]) -> dict[str, list[str]]:
    """The passages that each name stands for: itself, those of a document, or of the file at a path."""
    aliases: dict[str, list[str]] = {}
    for name in names:
        for alias in _aliases(name, sources):
            aliases.setdefault(alias, []).append(name)
    passages: dict[str, list[str]] = {}
    for passage in collection.passages():
        for name in {*aliases.get(passage.id, ()), *aliases.get(passage.doc, ())}:
            passages.setdefault(name, []).append(passage.id)
    return passages


def _aliases(name: str, sources: Sequence[str]) -> Iterator[str]:
    """What a document can be called: its id, or its place below a source."""
    yield name
    path = Path(name).expanduser()
    for source in map(Path, sources):
        for given in (path, source / path):
            if given.exists() and given.resolve().is_relative_to(source.resolve()):
                below = given.resolve().relative_to(source.resolve())
                yield below.as_posix() if below.parts else source.name


class UserQuestionsConfig(Config):
    """Questions of a file, and the passages they are asked against."""

    file: InputPath  # questions, with or without judged passages
    collection: InputPath  # A collection with passages
    # Where the collection's files lie, for judgements that name their paths
    sources: Annotated[tuple[str, ...], Unrecorded()] = ()
    pool: int = Field(POOL, ge=1)  # maximum number of passages they are asked against
    seed: int = 0  # draws the pool


class QuestionNotes(FileModel):
    """`notes.json`."""

    notes: list[str]
    judged: NonNegativeInt


def write_user_questions(config: UserQuestionsConfig, folder: Folder) -> None:
    """Write judged questions and their pool as `questions.py` does, the others beside them, and notes."""
    collection = Collection(config.collection)
    given, repeated = read_file(config.file)
    judged, unjudged, notes = judge(given, collection, config.sources, config.file)
    notes = [*repeated, *notes]
    if unjudged:
        notes.append(
            f"Your questions without a relevant passage: {len(unjudged):,}. To judge them: liebig label."
        )
    write_lines(folder.path / QUESTIONS, (json_line(asdict(question)) for question in judged))
    write_lines(folder.path / UNJUDGED, (json_line({"text": text}) for text in unjudged))
    named = {id for question in judged for id in (*question.passages, *question.against)}
    with CollectionWriter(folder.path) as writer:
        for passage in draw_pool(collection, named, config.pool, config.seed):
            writer.add(Item(passage, Where(str(collection.path))))
    folder.write_json(NOTES, {"notes": notes, "judged": len(once(judged))})


def notes_of(folder: Path) -> tuple[list[str], int]:
    """What `write_user_questions` has to say, and how many questions are judged."""
    written = read_json(folder / NOTES, QuestionNotes)
    return written.notes, written.judged


GIVEN = Stage("given", UserQuestionsConfig, write_user_questions, part_of="build")
