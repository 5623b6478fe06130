"""Small files that cost much: PDF bombs, and the growth of CPU time of every reader, C code included.

Each file is read in a process of its own with a bound on its memory and its CPU time. It may be read, or refused in one
sentence. Growth: the shapes of `tests/formats/test_linear_work.py`, which counts lines of Python, are read again at
larger sizes n and 4n; CPU time may grow by GROWTH, which is far from 16, what quadratic work has.
"""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

from liebig.base.errors import LiebigError
from liebig.formats import detect
from liebig.formats.items import Options
from liebig.formats.ledger import Ledger
from tests.faults.torture import Tally
from tests.formats import test_linear_work as shapes
from tests.worlds.processes import SERVER

SECONDS, MEMORY = 60, 2 << 30  # of a file
SIZE, GROWTH, LEAST = (
    20_000,
    9.0,
    0.2,
)  # of the smaller file; from one size to four times it; seconds that count
CATALOG, FONT = b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>"


def pdf(objects: dict[int, bytes], trailer: bytes = b"", table: bool = True) -> bytes:
    """A PDF of these objects; the first is its catalog."""
    data, places = b"%PDF-1.7\n", {}
    for number, body in objects.items():
        places[number] = len(data)
        data += b"%d 0 obj\n%b\nendobj\n" % (number, body)
    rows = b"".join(b"%d 1\n%010d 00000 n \n" % (number, place) for number, place in places.items())
    end = b"trailer\n<</Size %d/Root 1 0 R%b>>\nstartxref\n%d\n%%%%EOF" % (
        max(objects) + 1,
        trailer,
        len(data),
    )
    return data + (b"xref\n" + rows if table else b"") + end


def stream(data: bytes, more: bytes = b"") -> bytes:
    """A stream object."""
    return b"<</Length %d%b>>\nstream\n%b\nendstream" % (len(data), more, data)


def page(contents: bytes, resources: bytes = b"<</Font<</F 5 0 R>>>>", **more: bytes) -> bytes:
    """A PDF of one page; `more` are objects from 6 on."""
    objects = {
        1: CATALOG,
        2: b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        3: b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Contents 4 0 R/Resources %b>>" % resources,
        4: contents,
        5: FONT,
    }
    return pdf(objects | {6 + number: body for number, body in enumerate(more.values())})


def packed(times: int, size: int) -> bytes:
    """Zeros that were deflated several times."""
    packer, data = zlib.compressobj(9), b""
    for _ in range(size >> 20):
        data += packer.compress(bytes(1 << 20))
    data += packer.flush()
    for _ in range(times - 1):
        data = zlib.compress(data, 9)
    return stream(data, b"/Filter[" + b"/FlateDecode" * times + b"]")


def laughs(depth: int, font: bytes = b"") -> bytes:
    """Forms that each show the next one ten times."""
    forms = {}
    for number in range(depth):
        inner = b"/X Do " * 10 if number + 1 < depth else b"BT /F 9 Tf (ha) Tj ET"
        refers = b"/XObject<</X %d 0 R>>/Font<</F 5 0 R>>" % (7 + number)
        forms[f"form{number}"] = stream(inner, b"/Type/XObject/Subtype/Form/Resources<<%b>>" % refers)
    return page(stream(b"/X Do"), b"<</XObject<</X 6 0 R>>>>", **forms)


def deep_pages(depth: int) -> bytes:
    """A page tree that is a chain."""
    kids = {
        n: b"<</Type/Pages/Kids[%d 0 R]/Count 1/Parent %d 0 R>>" % (n + 1, n - 1) for n in range(2, depth)
    }
    return pdf({1: CATALOG} | kids | {depth: b"<</Type/Page/Parent %d 0 R>>" % (depth - 1)})


BIG = b"BT /F 9 Tf (many words) Tj ET "
CMAP = b"begincmap 1 begincodespacerange <0000><FFFF> endcodespacerange %b endcmap"
PDFS: dict[str, Callable[[], bytes]] = {
    "stream of 2 GB, deflated once": lambda: page(packed(1, 2 << 30)),
    "stream of 2 GB, deflated 3 times": lambda: page(packed(3, 2 << 30)),
    "1,000 nested filters": lambda: page(
        stream(zlib.compress(b"x"), b"/Filter[" + b"/FlateDecode" * 1000 + b"]")
    ),
    "run lengths": lambda: page(stream(b"\x81a" * 8_000_000, b"/Filter/RunLengthDecode")),
    "count of 10^9 pages": lambda: pdf(
        {1: CATALOG, 2: b"<</Type/Pages/Kids[3 0 R]/Count 1000000000>>", 3: b"<<>>"}
    ),
    "page tree in a circle": lambda: pdf({1: CATALOG, 2: b"<</Type/Pages/Kids[2 0 R 2 0 R]/Count 2>>"}),
    "500,000 times one page": lambda: pdf(
        {
            1: CATALOG,
            2: b"<</Type/Pages/Kids[" + b"3 0 R " * 500_000 + b"]/Count 500000>>",
            3: b"<</Type/Page/Parent 2 0 R>>",
        }
    ),
    "page tree 20,000 deep": lambda: deep_pages(20_000),
    "arrays 100,000 deep": lambda: page(b"[" * 100_000),
    "dictionaries 100,000 deep": lambda: page(b"<</A " * 100_000),
    "operands 100,000 deep": lambda: page(stream(b"[" * 100_000 + b"]" * 100_000 + b"TJ")),
    "one content 100,000 times": lambda: page(b"[" + b"6 0 R " * 100_000 + b"]", content=stream(BIG * 20)),
    "content that is itself": lambda: page(b"[4 0 R 4 0 R]"),
    "length that is itself": lambda: page(b"<</Length 4 0 R>>\nstream\nx\nendstream"),
    "forms that show forms": lambda: laughs(16),
    "form that shows itself": lambda: page(
        stream(b"/X Do"),
        b"<</XObject<</X 6 0 R>>>>",
        form=stream(b"/X Do /X Do", b"/Type/XObject/Subtype/Form/Resources<</XObject<</X 6 0 R>>>>"),
    ),
    "5 million operators": lambda: page(stream(zlib.compress(BIG * 1_000_000), b"/Filter/FlateDecode")),
    "operands without an operator": lambda: page(stream(b"1 " * 3_000_000)),
    "inline image without an end": lambda: page(stream(b"BI /W 9 /H 9 ID " + b"EI" * 500_000)),
    "strings without an end": lambda: page(stream(b"(" * 2_000_000)),
    "wide ranges of a font's characters": lambda: page(
        stream(BIG),
        b"<</Font<</F<</Type/Font/Subtype/Type0/ToUnicode 6 0 R>>>>>>",
        cmap=stream(CMAP % (b"1 beginbfrange <0000><FFFF><0000> endbfrange\n" * 500)),
    ),
    "earlier table that is itself": lambda: pdf(
        {1: CATALOG, 2: b"<</Type/Pages/Kids[]/Count 0>>"}, b"/Prev 9"
    ),
    "tables that name each other": lambda: (
        b"%PDF-1.7\n"
        + b"xref\n0 0\ntrailer\n<</Root 1 0 R/Prev %09d>>\n" * 2 % (9, 9)
        + b"startxref\n9\n%%EOF"
    ),
    "table of 10^9 rows": lambda: (
        b"%PDF-1.7\nxref\n0 1000000000\ntrailer<</Root 1 0 R>>\nstartxref\n9\n%%EOF"
    ),
    "stream of the table, 10^9 rows": lambda: (
        b"%PDF-1.7\n1 0 obj\n"
        + stream(b"", b"/Type/XRef/W[1 2 1]/Index[0 1000000000]/Size 1000000000/Root 1 0 R")
        + b"\nendobj\nstartxref\n9\n%%EOF"
    ),
    "no table, 200,000 objects": lambda: pdf(
        {1: CATALOG, 2: b"<</Type/Pages/Kids[]/Count 0>>"} | dict.fromkeys(range(3, 200_000), b"<<>>"),
        table=False,
    ),
    "object stream of 10^9 objects": lambda: page(
        b"7 0 R", objects=stream(b"7 0 <<>>", b"/Type/ObjStm/N 1000000000/First 4")
    ),
    "object streams that extend each other": lambda: page(
        b"9 0 R",
        a=stream(b"", b"/Type/ObjStm/N 0/First 0/Extends 7 0 R"),
        b=stream(b"", b"/Type/ObjStm/N 0/First 0/Extends 6 0 R"),
    ),
    "outline in a circle": lambda: pdf(
        {
            1: b"<</Type/Catalog/Pages 2 0 R/Outlines 3 0 R>>",
            2: b"<</Type/Pages/Kids[]/Count 0>>",
            3: b"<</First 4 0 R/Last 4 0 R>>",
            4: b"<</Title(a)/Next 4 0 R/First 4 0 R/Parent 3 0 R>>",
        }
    ),
    "names that name each other": lambda: pdf(
        {
            1: b"<</Type/Catalog/Pages 2 0 R/Names<</Dests 3 0 R>>/Outlines 4 0 R>>",
            2: b"<</Kids[]/Count 0>>",
            3: b"<</Kids[3 0 R 3 0 R]>>",
            4: b"<</First 5 0 R>>",
            5: b"<</Title(a)/Dest(b)>>",
        }
    ),
}


def run(tally: Tally, out: Path) -> None:
    """Every bomb, then every shape at two sizes."""
    home = out / "bombs"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    for name, make in list(PDFS.items())[tally["PDF bombs"] :]:
        path = home / "bomb.pdf"
        path.write_bytes(make())
        seconds, said = measure(path)
        tally.add("PDF bombs")
        tally.add("refused" if said.startswith("refused") else "read" if said == "read" else "wrong")
        tally.save([] if said == "read" or said.startswith("refused") else [f"{name}: {said}"])
        tally.counts["most CPU seconds"] = max(tally.counts.get("most CPU seconds", 0.0), round(seconds, 1))
    cases = [(suffix, name, shape) for suffix, some in GROWING.items() for name, shape in some.items()]
    for suffix, name, shape in cases[tally["shapes"] :]:
        tally.add("shapes")
        tally.save(grown(home, suffix, name, shape, tally))
    shutil.rmtree(home)


GROWING = {
    ".txt": shapes.TEXTS,
    ".md": shapes.TEXTS,
    ".rst": shapes.TEXTS,
    ".html": shapes.PAGES,
    "": shapes.FILES,
    ".pdf": {
        "operators.pdf": lambda n: page(stream(BIG * n)),
        "strings.pdf": lambda n: page(stream(b"(" * n)),
        "objects.pdf": lambda n: pdf({1: CATALOG} | dict.fromkeys(range(2, n), b"<<>>"), table=False),
        "inline.pdf": lambda n: page(stream(b"BI ID " + b"EI" * n)),
        "operands.pdf": lambda n: page(stream(b"1 " * n)),
    },
}


def grown(home: Path, suffix: str, name: str, shape: Callable[[int], str | bytes], tally: Tally) -> list[str]:
    """CPU time at two sizes; the smaller is chosen so large that it takes some."""
    seconds, size = [], SIZE
    for factor in (1, 4):
        data = shape(factor * size)
        path = home / str(factor) / (name if suffix in ("", ".pdf") else f"a{suffix}")
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        measured = [measure(path) for _ in range(2)]
        seconds.append(min(time for time, _ in measured))
        bad = [said for _, said in measured if said != "read" and not said.startswith("refused")]
        path.unlink()
        if bad:
            return [f"{suffix} {name}, {factor * size}: {bad[0]}"]
    growth = round(seconds[1] / max(seconds[0], LEAST), 1)
    tally.counts["largest growth"] = max(tally.counts.get("largest growth", 0.0), growth)
    return [f"{suffix} {name}: CPU time {seconds}"] if growth > GROWTH else []


def measure(path: Path) -> tuple[float, str]:
    """CPU seconds of reading a file, and how it ended."""
    answer = path.with_suffix(".answer")
    answer.unlink(missing_ok=True)
    process = SERVER.Process(target=_read, args=(path, answer))
    process.start()
    process.join(20 * SECONDS)
    process.kill()
    process.join()
    if not answer.is_file():
        return float(
            SECONDS
        ), f"ended with {process.exitcode} (more than {SECONDS} s of CPU time, or a crash)"
    seconds, _, said = answer.read_text().partition(" ")
    return float(seconds), said


def _read(path: Path, answer: Path) -> None:
    import resource  # limits of a process are those of POSIX systems

    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY, taken + MEMORY))
    spent = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    resource.setrlimit(resource.RLIMIT_CPU, (int(spent) + SECONDS, int(spent) + SECONDS))
    try:
        ledger = Ledger(strict=True)
        for match in detect(path, None, ledger):
            for _ in match.items(Options(ledger=ledger)):
                pass
        said = "read"
    except LiebigError as error:
        said = f"refused: {error}" if "\n" not in str(error) else f"refused in several lines: {error}"
    except BaseException as error:
        said = f"{type(error).__name__}: {error}"[:300]
    seconds = sum(resource.getrusage(resource.RUSAGE_SELF)[:2]) - spent
    answer.write_text(f"{seconds:.3f} {said}")
