"""Imports only go down: the rooms and floors of the design, read from the code itself."""

import ast
from pathlib import Path

import liebig

ROOT = Path(liebig.__file__).parent

FLOORS = [
    {"__init__", "records", "errors", "explain", "encoders"},
    {"config", "workspace", "progress", "rng", "machine", "processes", "pipeline"},
    {"text"},
    {"data"},
    {"losses", "measures", "statistics"},
    {"model"},
    {"train"},
    {
        "corpus",
        "lexical",
        "queries",
        "pretrain",
        "finetune",
        "rerank",
        "encode",
        "index",
        "search",
        "evaluate",
        "analyse",
        "report",
    },
    {"retriever"},
    {"serve", "doctor", "plan", "export", "integrations"},
    {"stages", "demo"},
    {"cli", "commands", "__main__"},
]
ROOMS = FLOORS[7]
UPSTREAM = {
    ("queries", "lexical"),
    ("search", "index"),
    ("search", "lexical"),
    ("rerank", "search"),
    ("report", "evaluate"),
    ("analyse", "evaluate"),
}
LIGHT = {"text", "data"}
HEAVY = {"torch", "transformers", "sentence_transformers", "datasets", "matplotlib", "faiss"}


def floor_of(name: str) -> int:
    for number, names in enumerate(FLOORS):
        if name in names:
            return number
    raise AssertionError(f"{name} is on no floor: say where it belongs in tests/test_floors.py")


def room_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(tree: ast.AST) -> set[str]:
    """The modules of liebig that a tree imports, by their first name."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("liebig.")}
        elif isinstance(node, ast.ImportFrom) and node.module == "liebig":
            found |= {alias.name for alias in node.names if alias.name != "__version__"}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("liebig."):
            found.add(node.module.split(".")[1])
    return found


def sources() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def test_every_file_is_on_a_floor():
    assert {floor_of(room_of(path)) for path in sources()} <= set(range(len(FLOORS)))


def test_no_import_goes_up():
    upward = [
        f"{path.relative_to(ROOT)} imports liebig.{name}"
        for path in sources()
        for name in imported(ast.parse(path.read_text()))
        if floor_of(name) > floor_of(room_of(path))
        and room_of(path) != "__init__"  # the library's face is lazy
    ]
    assert upward == []


def test_rooms_meet_through_files():
    sideways = [
        f"{path.relative_to(ROOT)} imports liebig.{name}"
        for path in sources()
        for name in imported(ast.parse(path.read_text()))
        if {name, room_of(path)} <= ROOMS and name != room_of(path) and (room_of(path), name) not in UPSTREAM
    ]
    assert sideways == []


def test_text_data_and_configs_import_nothing_heavy():
    heavy = []
    for path in sources():
        if room_of(path) not in LIGHT and path.name not in (
            "config.py",
            "init_config.py",
            "stages.py",
            "cli.py",
        ):
            continue
        for node in ast.parse(path.read_text()).body:
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            heavy += [f"{path.relative_to(ROOT)}: {n}" for n in names if n.split(".")[0] in HEAVY]
    assert heavy == []


def test_the_environment_is_read_only_by_the_command_line():
    readers = [
        str(path.relative_to(ROOT))
        for path in sources()
        if path.name != "cli.py" and any(word in path.read_text() for word in ("os.environ", "getenv"))
    ]
    assert readers == []


def test_files_of_tests_have_names_of_their_own():
    """pytest imports them by name alone."""
    names = [path.name for path in Path(__file__).parent.rglob("*.py") if path.name != "conftest.py"]
    assert sorted(name for name in set(names) if names.count(name) > 1) == []
