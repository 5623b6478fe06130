"""A folder of many small files into a collection, against `find` and `cat`; and the speed of every reader.

    python bench/folder.py [--files 100000] [--only files | formats]

Writes the files (Markdown, plain text, Python, JSON, settings; about 600 bytes each, in folders of 500), and reads them
with `liebig init` and with `find DIR -type f -print0 | xargs -0 cat`, each a process of its own, in CPU time of the
process and its children, because both read from the page cache. Prints files per CPU second and the peak memory of
ours, with that of a tenth of the files beside it. Then every kind is read from memory: MB of text per CPU second.
The last line is `ratio: X`, the CPU time of `find` and `cat` over ours.
"""

from __future__ import annotations

import argparse
import bz2
import gzip
import json
import lzma
import os
import plistlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from liebig.formats.inputs import BytesSource  # noqa: E402
from liebig.formats.parsers import articles, kind_of  # noqa: E402
from tests.worlds import mixed_folder as made  # noqa: E402

SENTENCE = (
    "The valve of pump {n} opens when the pressure in the boiler falls below {n} bar, and a lamp is lit. "
)


def small_file(n: int) -> tuple[str, str]:
    """The name and the text of a small file."""
    text = SENTENCE.format(n=n) * 6
    return (
        (f"{n}.md", f"# Pump {n}\n\n{text}\n"),
        (f"{n}.txt", f"Pump {n}\n\n{text}\n"),
        (
            f"{n}.py",
            f'"""{text}"""\n\n\ndef open_valve_{n}() -> int:\n    """Open valve {n}."""\n    return {n}\n',
        ),
        (f"{n}.json", json.dumps({"name": f"pump {n}", "remark": text}, indent=1)),
        (f"{n}.yaml", f"name: pump {n}\nremark: {text}\n"),
    )[n % 5]


def write_files(folder: Path, count: int) -> None:
    """Small files, 500 to a folder."""
    for n in range(count):
        place = folder / f"{n // 500:04d}"
        place.mkdir(parents=True, exist_ok=True)
        name, text = small_file(n)
        (place / name).write_text(text, encoding="utf-8")


def run(command: list[str] | str) -> tuple[float, int]:
    """CPU seconds of a command with its children, and its peak memory in MiB."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        command,
        shell=isinstance(command, str),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command} failed with {process.returncode}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss >> (20 if sys.platform == "darwin" else 10)


def read_files(folder: Path, count: int) -> tuple[float, int]:
    """CPU seconds and peak memory (MiB) of reading a folder of small files, which is written first."""
    write_files(folder / "in", count)
    return run([sys.executable, "-m", "liebig", "init", str(folder / "in"), "--out", str(folder / "out")])


def many_files(count: int) -> float:
    """Both sides on many small files; returns the ratio."""
    with tempfile.TemporaryDirectory() as name:
        _, small = read_files(Path(name) / "tenth", count // 10)
        ours, peak = read_files(Path(name) / "all", count)
        theirs, _ = run(f"find {name}/all/in -type f -print0 | xargs -0 cat > /dev/null")
    print(
        f"{count:,} files: liebig init {count / ours:,.0f} files per CPU second, find and cat {count / theirs:,.0f}"
    )
    print(f"peak memory {peak} MiB; of {count // 10:,} files {small} MiB")
    return theirs / ours


PARAGRAPHS = [SENTENCE.format(n=n) * 3 for n in range(800)]
TEXT = "\n\n".join(PARAGRAPHS)
FEW = PARAGRAPHS[:60]  # what the writer of old Office files of the tests has room for


def calendar(kind: str, field: str, around: str = "") -> str:
    """A file of dates or contacts, with an entry per paragraph."""
    entries = (
        f"BEGIN:{kind}\r\nSUMMARY:Pump\r\nFN:Pump\r\n{field}:{text}\r\nEND:{kind}\r\n" for text in PARAGRAPHS
    )
    return f"BEGIN:{around}\r\n{''.join(entries)}END:{around}\r\n" if around else "".join(entries)


def large_files() -> dict[str, bytes]:
    """A file of each kind with about as much text in it, by name."""
    rows: list[list[object]] = [["pump", "remark"]]
    rows += [[f"pump {n}", text] for n, text in enumerate(PARAGRAPHS)]
    cells = [
        f"<table:table-row><table:table-cell><text:p>{name}</text:p></table:table-cell><table:table-cell>"
        f"<text:p>{text}</text:p></table:table-cell></table:table-row>"
        for name, text in rows
    ]
    notebook = {"cells": [{"cell_type": "markdown", "source": text} for text in PARAGRAPHS]}
    mails = [made.message(f"Pump {n}", "a@example.org", text) for n, text in enumerate(PARAGRAPHS)]
    texts = {
        "a.txt": TEXT,
        "a.md": TEXT,
        "a.rst": TEXT,
        "a.html": f"<main>{''.join(f'<p>{text}</p>' for text in PARAGRAPHS)}</main>",
        "a.tex": TEXT,
        "a.org": TEXT,
        "a.adoc": TEXT,
        "a.1": ".TH A 1\n.SH NAME\n" + TEXT,
        "a.log": "\n".join(PARAGRAPHS),
        "a.yaml": "\n".join(f"remark{n}: {text}" for n, text in enumerate(PARAGRAPHS)),
        "a.json": json.dumps({f"remark{n}": text for n, text in enumerate(PARAGRAPHS)}),
        "a.xml": f"<a>{''.join(f'<p>{text}</p>' for text in PARAGRAPHS)}</a>",
        "a.rtf": "{\\rtf1 " + "\\par ".join(PARAGRAPHS) + "}",
        "a.py": "\n\n".join(f'def f{n}():\n    """{text}"""' for n, text in enumerate(PARAGRAPHS)),
        "a.java": "\n\n".join(f"/** {text} */\nvoid f{n}() {{\n}}" for n, text in enumerate(PARAGRAPHS)),
        "a.ipynb": json.dumps(notebook),
        "a.toml": "\n".join(f'remark{n} = "{text}"' for n, text in enumerate(PARAGRAPHS)),
        "a.patch": "\n".join(f"+{text}" for text in PARAGRAPHS),
        "a.ics": calendar("VEVENT", "DESCRIPTION", "VCALENDAR"),
        "a.vcf": calendar("VCARD", "NOTE"),
        "a.srt": "\n\n".join(
            f"{n}\n00:00:01,000 --> 00:00:02,000\n{text}" for n, text in enumerate(PARAGRAPHS)
        ),
        "a.rss": f"<rss>{''.join(f'<item><title>{text}</title></item>' for text in PARAGRAPHS)}</rss>",
    }
    return {name: text.encode() for name, text in texts.items()} | {
        "a.pdf": made.pdf(PARAGRAPHS[:100]),
        "a.docx": made.docx(PARAGRAPHS, "Pumps", "A"),
        "a.pptx": made.pptx([(f"Pump {n}", text, "") for n, text in enumerate(PARAGRAPHS)], "Pumps", "A"),
        "a.xlsx": made.xlsx({"Pumps": rows}),
        "a.odt": made.odf("text", "".join(f"<text:p>{text}</text:p>" for text in PARAGRAPHS)),
        "a.odp": made.odf(
            "presentation", "".join(f"<draw:page><text:p>{t}</text:p></draw:page>" for t in PARAGRAPHS)
        ),
        "a.ods": made.odf("spreadsheet", f'<table:table table:name="Pumps">{"".join(cells)}</table:table>'),
        "a.epub": made.epub("Pumps", "A", "</p><p>".join(PARAGRAPHS)),
        "a.doc": made.doc("\r".join(FEW)),
        "a.ppt": made.ppt([(f"Pump {n}", text) for n, text in enumerate(FEW)]),
        "a.xls": made.xls("Pumps", [[str(cell) for cell in row] for row in rows[:60]]),
        "a.plist": plistlib.dumps(dict(zip(map(str, range(800)), PARAGRAPHS)), fmt=plistlib.FMT_BINARY),
        "a.mht": made.mht("Pumps", "".join(f"<p>{text}</p>" for text in PARAGRAPHS)),
        "a.txt.gz": gzip.compress(TEXT.encode()),
        "a.txt.bz2": bz2.compress(TEXT.encode()),
        "a.txt.xz": lzma.compress(TEXT.encode()),
        "a.eml": made.message("Pumps", "a@example.org", TEXT),
        "a.mbox": b"".join(b"From a\n" + mail + b"\n" for mail in mails),
        "a.msg": made.outlook({"0037": "Pumps", "1000": PARAGRAPHS[0] * 8}),
    }


def every_format() -> None:
    """MB of text per CPU second of every reader."""
    print("| kind | MB of text per CPU second |\n| --- | ---: |")
    for name, data in large_files().items():
        source = BytesSource(name, data)
        kind = kind_of(source)
        assert kind is not None, f"{name} is of a kind that is read"

        def read(source: BytesSource = source, kind: object = kind) -> int:
            sections = [section for article in articles(source, kind) for section in article.sections]  # type: ignore[arg-type]
            return sum(len(text) for section in sections for text in section.paragraphs)

        print(f"| {name[2:]} | {rate(read):.1f} |", flush=True)


def rate(read: Callable[[], int]) -> float:
    """MB per CPU second, the best of three rounds of at least 0.2 s."""
    read()  # imports
    best = 0.0
    for _ in range(3):
        began, size = time.process_time(), 0
        while time.process_time() - began < 0.2:
            size += read()
        best = max(best, size / (time.process_time() - began) / 1e6)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--only", choices=("files", "formats"))
    args = parser.parse_args()
    if args.only != "files":
        every_format()
    if args.only != "formats":
        print(f"ratio: {many_files(args.files):.3f}")


if __name__ == "__main__":
    main()
