"""Imports only go down: the floors of the source tree, read from the code itself."""

import ast
import re
from graphlib import TopologicalSorter
from pathlib import Path

import liebig
from liebig.stages import SUMMARIES

ROOT = Path(liebig.__file__).parent

FLOORS = [
    {"__init__"},
    {"base", "encoders"},
    {"ragged"},
    {"text"},
    {"formats"},
    {"collection"},
    {"store"},
    {"vectors"},
    {"losses", "measures"},
    {"model"},
    {"train"},
    {"methods"},
    {"bm25", "indexes"},
    {"queries"},
    {"engines"},
    {"search"},
    {"evaluation"},
    {"stages"},
    {"builder"},
    {"serve", "export", "integrations", "demo"},
    {"planner", "paper_plan", "reproduce", "api", "on_ray"},
    {"commands"},
    {"stage_command"},
    {"cli", "__main__"},
]
LIGHT = {"base", "ragged", "text", "formats", "collection", "store"}
HEAVY = {"torch", "transformers", "sentence_transformers", "datasets", "matplotlib", "faiss"}


def floor_of(name: str) -> int:
    for number, names in enumerate(FLOORS):
        if name in names:
            return number
    raise AssertionError(f"{name} is on no floor: say where it belongs in tests/test_floors.py")


def folder_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(tree: ast.AST) -> set[str]:
    """The folders of liebig that a tree imports from; `import liebig` gives all public functions, those of `api`."""
    folders = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            folders |= {a.name.split(".")[1] for a in node.names if a.name.startswith("liebig.")}
            folders |= {"api" for a in node.names if a.name == "liebig"}
        elif isinstance(node, ast.ImportFrom) and node.module == "liebig":
            folders |= {alias.name for alias in node.names if alias.name != "__version__"}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("liebig."):
            folders.add(node.module.split(".")[1])
    return folders


def stages_by_key(tree: ast.AST) -> set[str]:
    """The stages that a tree names by a string: `STAGES["init"]`, or a recipe `{"kind": "init"}`."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name) and node.value.id == "STAGES":
            names.add(ast.unparse(node.slice))
        elif isinstance(node, ast.Dict):
            pairs = [
                (key, value) for key, value in zip(node.keys, node.values) if isinstance(key, ast.Constant)
            ]
            kinds = {
                value.value for key, value in pairs if key.value == "kind" and isinstance(value, ast.Constant)
            }
            names |= {kind for kind in kinds if kind in SUMMARIES}
    return names


def sources() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def test_every_file_is_on_a_floor():
    assert {floor_of(folder_of(path)) for path in sources()} <= set(range(len(FLOORS)))


def test_no_import_goes_up():
    upward = [
        f"{path.relative_to(ROOT)} imports liebig.{name}"
        for path in sources()
        for name in imported(ast.parse(path.read_text()))
        if floor_of(name) > floor_of(folder_of(path))
        and folder_of(path) != "__init__"  # the public API imports lazily
    ]
    assert upward == []


def test_no_stage_is_called_by_key():
    """What runs a stage imports it, so that a type checker sees its config; recipes of users are the exception."""
    recipes = {"commands/run.py", "commands/show.py"}
    above = [path for path in sources() if floor_of(folder_of(path)) > floor_of("stages")]
    keyed = {str(path.relative_to(ROOT)): stages_by_key(ast.parse(path.read_text())) for path in above}
    assert {file: names for file, names in keyed.items() if names and file not in recipes} == {}


def test_the_lower_floors_import_nothing_heavy():
    heavy = []
    for path in sources():
        if folder_of(path) not in LIGHT:
            continue
        for node in ast.parse(path.read_text()).body:
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            heavy += [f"{path.relative_to(ROOT)}: {n}" for n in names if n.split(".")[0] in HEAVY]
    assert heavy == []


def test_the_environment_is_read_in_two_places():
    readers = {
        str(path.relative_to(ROOT))
        for path in sources()
        if any(word in path.read_text() for word in ("os.environ", "getenv"))
    }
    assert readers <= {"cli.py", "base/machine.py"}


def test_no_two_modules_share_a_name():
    names = [path.name for path in sources() if path.name not in ("__init__.py", "base.py")]
    faces = {path.name for folder in ("commands", "stages") for path in (ROOT / folder).glob("*.py")}
    loss_and_method = {"contrastive.py", "mlm.py"}
    twice = {name for name in names if names.count(name) > 1} - faces - loss_and_method
    assert twice == set()


def test_the_map_of_contributing_names_what_exists():
    page = (Path(__file__).parents[1] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    answers, tree = (
        page.split("## Where do I look?")[1].split("## Add an objective")[0].split("## The source")
    )
    named = set(re.findall(r"`((?:[a-z0-9_]+/)+(?:[a-z0-9_]+\.py)?)`", answers))
    assert {name for name in named if not (ROOT / name).exists()} == set()
    folders = {path.name for path in ROOT.iterdir() if path.is_dir() and (path / "__init__.py").is_file()}
    assert set(re.findall(r"^  ([a-z0-9_]+)/ ", tree, re.MULTILINE)) == folders


def test_no_files_import_in_a_circle():
    """Imports for types alone count too: what two files need of each other belongs to a third below them."""
    names = {".".join(("liebig", *path.relative_to(ROOT).with_suffix("").parts)): path for path in sources()}
    names = {name.removesuffix(".__init__"): path for name, path in names.items()}
    graph = {}
    for name, path in names.items():
        nodes = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ImportFrom)]
        inner = {(f"{node.module}.{alias.name}", node.module) for node in nodes for alias in node.names}
        graph[name] = {whole if whole in names else module for whole, module in inner} & set(names) - {name}
    TopologicalSorter(graph).prepare()  # names the files of a circle
