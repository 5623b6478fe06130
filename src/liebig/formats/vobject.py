"""Calendars (.ics) and contacts (.vcf): a document per event, task, note or person.

Both are lines of `NAME;PARAMETERS:value`, of which a long one goes on in the next, behind a space (RFC 5545, RFC 6350).
What programs keep for themselves (ids, time stamps, alarms, pictures) is left out. Cost: one pass.
"""

from __future__ import annotations

import quopri
import re
from collections.abc import Iterator
from typing import NamedTuple

from liebig.formats.outline import Article, numbered_section

EVENTS = ("VEVENT", "VTODO", "VJOURNAL")
SHOWN = {
    "DTSTART": "start", "DTEND": "end", "DUE": "due", "DURATION": "duration", "LOCATION": "location",
    "STATUS": "status", "ORGANIZER": "organizer", "ATTENDEE": "attendee",
    "CATEGORIES": "categories", "DESCRIPTION": "", "COMMENT": "",
    "CONTACT": "contact", "URL": "url",
    "ORG": "organisation", "TITLE": "position", "ROLE": "role", "EMAIL": "email", "TEL": "telephone", "ADR": "address",
    "BDAY": "birthday", "NOTE": "", "NICKNAME": "nickname",
}  # fmt: skip
ESCAPED = re.compile(r"\\(.)")
TIME = re.compile(r"(\d{4})(\d\d)(\d\d)(?:T(\d\d)(\d\d)\d\dZ?)?")


class Property(NamedTuple):
    """A line: its name, its parameters, its value, and the line it begins on."""

    name: str
    parameters: str
    value: str
    line: int


def parse_calendar(text: str) -> Iterator[Article]:
    """The events, tasks and notes of a calendar."""
    inside, within = list[Property](), ""
    for one in _properties(text):
        value = one.value.upper()
        if one.name == "BEGIN" and value in EVENTS:
            inside, within = [], value
        elif one.name == "BEGIN" and within:
            within = f"{within}/{value}"  # an alarm
        elif one.name == "END" and within == value:
            yield _article(inside, ("SUMMARY",), "event")
            within = ""
        elif one.name == "END" and within:
            within = within.rpartition("/")[0]
        elif within in EVENTS:
            inside.append(one)
    if within and inside:  # cut short
        yield _article(inside, ("SUMMARY",), "event")


def parse_contacts(text: str) -> Iterator[Article]:
    """The people of an address book."""
    inside = list[Property]()
    for one in _properties(text):
        if one.name == "BEGIN":
            inside = []
        elif one.name == "END":
            yield _article(inside, ("FN", "N", "ORG", "EMAIL"), "contact")
        else:
            inside.append(one)


def _article(properties: list[Property], titles: tuple[str, ...], kind: str) -> Article:
    values = {one.name: one for one in reversed(properties)}
    title = next(
        (_plain(values[name]) for name in titles if name in values and values[name].value.strip("; ")), ""
    )
    lines = list[tuple[int, str]]()
    for one in properties:
        label = SHOWN.get(one.name)
        if label is not None and (said := _plain(one)):
            lines.append((one.line, f"{label}: {said}" if label else said))
    if not lines and title:
        lines = [(properties[0].line, title)]
    section = numbered_section("", lines, "line")
    first = str(properties[0].line) if properties else ""
    about = {"date": _plain(values["DTSTART"])} if "DTSTART" in values else {}
    if "ORGANIZER" in values:
        about["author"] = _plain(values["ORGANIZER"])
    return Article(title[:200], (section,) if lines else (), f"{kind}-{first}", about)


def _properties(text: str) -> Iterator[Property]:
    for number, line in _unfolded(text):
        head, colon, value = _divided(line)
        name, _, parameters = head.partition(";")
        if colon:
            yield Property(name.rpartition(".")[2].strip().upper(), parameters, value, number)


def _divided(line: str) -> tuple[str, str, str]:
    """A line at its first colon that is not in quotes."""
    quoted = False
    for place, sign in enumerate(line):
        if sign == '"':
            quoted = not quoted
        elif sign == ":" and not quoted:
            return line[:place], ":", line[place + 1 :]
    return line, "", ""


def _unfolded(text: str) -> Iterator[tuple[int, str]]:
    """Whole lines, with the number of the first."""
    parts, first = list[str](), 1
    for number, line in enumerate(text.split("\n"), 1):
        soft = bool(parts) and parts[-1].endswith("=") and "QUOTED-PRINTABLE" in parts[0].upper()
        if parts and (line[:1] in (" ", "\t") or soft):
            parts[-1] = parts[-1].removesuffix("=") if soft else parts[-1]
            parts.append(line if soft else line[1:])
            continue
        if parts:
            yield first, "".join(parts)
        parts, first = [line], number
    if parts:
        yield first, "".join(parts)


def _plain(one: Property) -> str:
    """A value as a person reads it."""
    value = one.value.strip()
    if "QUOTED-PRINTABLE" in one.parameters.upper():
        value = quopri.decodestring(value.encode()).decode("utf-8", "replace")
    if time := TIME.fullmatch(value):
        day, clock = "-".join(time.groups()[:3]), time.groups()[3:]
        return f"{day} {clock[0]}:{clock[1]}" if clock[0] else day
    if one.name in ("ORGANIZER", "ATTENDEE", "EMAIL", "TEL"):
        value = re.sub(r"^(?:mailto|tel):", "", value, flags=re.IGNORECASE)
        named = re.search(r"CN=(\"[^\"]*\"|[^;:]*)", one.parameters)
        value = f"{named[1].strip(chr(34))} <{value}>" if named else value
    if one.name in ("N", "ADR", "ORG"):
        parts = [part.strip() for part in re.split(r"(?<!\\);", value)]
        parts = [parts[1], parts[0]] if one.name == "N" and len(parts) > 1 else parts
        value = (" " if one.name == "N" else ", ").join(filter(None, parts))
    return ESCAPED.sub(lambda sign: "\n" if sign[1] in "nN" else sign[1], value).strip()
