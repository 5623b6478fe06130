"""What the source never does; the rest of SECURITY.md is tested where it is done."""

import ast
from pathlib import Path

import liebig

SOURCE = Path(liebig.__file__).parent
CALLS = {"eval", "exec", "os.system", "pickle.load", "pickle.loads", "marshal.loads", "yaml.load"}
ARGUMENTS = {"trust_remote_code": True, "allow_pickle": True, "shell": True, "weights_only": False}


def test_no_code_is_run_from_data():
    found = []
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            given = {word.arg: getattr(word.value, "value", None) for word in node.keywords}
            unsafe = [name for name, value in ARGUMENTS.items() if given.get(name) is value]
            unsafe += [
                name for name in [ast.unparse(node.func)] if name in CALLS or name.endswith(".extractall")
            ]
            found += [f"{path.relative_to(SOURCE)}:{node.lineno}: {name}" for name in unsafe]
    assert found == []
