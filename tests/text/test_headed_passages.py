"""Passages of a document carry the headings they stand under, and no heading is lost."""

from liebig.base.records import Document, Section
from liebig.stages.passages import cut


def whole(texts):
    return [[" ".join(paragraphs)] for paragraphs in texts]


def passages(title, *sections):
    document = Document("a", title, tuple(Section(heading, paragraphs) for heading, paragraphs in sections))
    return [(piece.passage.title, piece.passage.text, piece.heading) for piece in cut(document, whole)]


def test_a_passage_is_titled_with_its_document_and_its_heading():
    assert passages("Lease", ("", ("Here.",)), ("Rent", ("Much.",)), ("The lease", ("Ends.",))) == [
        ("Lease", "Here.", ""),
        ("Lease: Rent", "Much.", "Rent"),
        ("The lease", "Ends.", "The lease"),
    ]


def test_a_heading_above_another_joins_it():
    assert passages("Guide", ("Install", ()), ("Linux", ("Run it.",)), ("Use", ())) == [
        ("Guide: Install: Linux", "Run it.", "Install: Linux"),
        ("Guide", "Use", ""),
    ]


def test_headings_without_any_text_are_text():
    tasks = [("Paint the boat", ()), ("Call Ann", ()), ("Dates", ())]
    assert passages("Tasks", *tasks, ("May", ("The fair.",))) == [
        ("Tasks", "Paint the boat\nCall Ann", ""),
        ("Tasks: Dates: May", "The fair.", "Dates: May"),
    ]
    assert passages("Tasks", *tasks) == [("Tasks", "Paint the boat\nCall Ann\nDates", "")]
