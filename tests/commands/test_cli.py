"""The command line: help that teaches, one clear sentence for what a user can fix, pages that match the code."""

import importlib.util
import json
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner

from liebig import __version__
from liebig.base import config as recipes
from liebig.cli import make_app
from liebig.stage_command import _type_names, split_words, stored_forms
from liebig.stages import STAGES

ROOT = Path(__file__).parents[2]


def invoke(*words: str):
    return CliRunner().invoke(make_app(), list(words))


def generator() -> ModuleType:
    """docs/generate.py as a module."""
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_generated_pages_are_up_to_date():
    for path, page in generator().pages().items():
        assert path.read_text(encoding="utf-8") == page, "run `make docs`"


def test_every_stage_has_a_schema_and_none_is_tracked():
    schemas = generator().schemas()
    assert {path.stem for path in schemas} == {name.replace(" ", "-") for name in STAGES}
    assert all(json.loads(text)["type"] == "object" for text in schemas.values())
    assert "docs/schema/" in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()


def test_every_command_teaches_with_an_example():
    page = generator().cli_page()
    for part in page.split("\n## ")[1:]:
        name = part.splitlines()[0]
        if "COMMAND [ARGS]" in part:
            continue
        assert "Example:" in part, name
        assert f"{name} " in part.split("Example:")[1], name


def test_the_version_is_printed_without_a_command():
    result = invoke("--version")
    assert result.exit_code == 0
    assert result.stdout == f"liebig {__version__}\n"


def test_every_field_of_a_stage_says_what_it_is_for():
    silent = [
        f"{s.name}.{n}"
        for s in STAGES.values()
        for n, f in s.config.model_fields.items()
        if not f.description
    ]
    assert silent == []


def test_a_wrong_flag_value_is_one_sentence_and_exit_code_2(tmp_path):
    result = invoke("prepare", str(tmp_path), "--out", str(tmp_path / "out"), "--processes", "many")
    assert result.exit_code == 2
    assert len(result.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_a_missing_input_is_one_sentence_and_exit_code_2(tmp_path):
    result = invoke("init", str(tmp_path / "nothing"), "--out", str(tmp_path / "out"))
    assert result.exit_code == 2
    assert "nothing" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_show_fills_in_defaults_and_overrides(tmp_path):
    recipe = tmp_path / "r.toml"
    recipe.write_text('[stages.docs]\nkind = "init"\npaths = ["stdlib:"]\n')
    result = invoke("show", str(recipe), "stages.docs.limit=7")
    assert result.exit_code == 0
    assert "limit = 7" in result.stdout


def test_show_schema_is_for_one_stage():
    assert invoke("show", "--schema", "prepare").stdout.startswith("{")
    assert invoke("show", "--schema", "prepar").exit_code == 2


def test_help_needs_no_torch():
    code = "import sys; import liebig.cli; liebig.cli.make_app(); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def completed(words: str) -> list[str]:
    """What a shell is offered behind these words."""
    code = "import sys; sys.argv = ['liebig']; from liebig.cli import main; main()"
    asked = {
        "_LIEBIG_COMPLETE": "complete_bash",
        "COMP_WORDS": f"liebig {words}",
        "COMP_CWORD": str(len(words.split())),
    }
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **asked}, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


def test_a_shell_completes_commands_and_options():
    assert completed("se") == ["search", "serve"]
    assert completed("queries g") == ["generate"]
    assert "--system" in completed("search --sy")


def test_quiet_prints_results_and_errors_only_on_either_side_of_the_command(tmp_path):
    (tmp_path / "a.txt").write_text("Barley grows in cool ground.")
    loud = invoke("init", str(tmp_path / "a.txt"), "--out", str(tmp_path / "loud"))
    assert (loud.exit_code, "reading" in loud.stderr) == (0, True)
    for number, words in enumerate((["--quiet", "init"], ["init", "-q"])):
        result = invoke(*words, str(tmp_path / "a.txt"), "--out", str(tmp_path / f"out{number}"))
        assert (result.exit_code, result.stderr) == (0, "")
        assert "documents" in result.stdout
    error = invoke("init", "-q", str(tmp_path / "none"), "--out", str(tmp_path / "none-out"))
    assert (error.exit_code, error.stderr.count("\n")) == (2, 1)


def test_verbose_shows_where_an_error_comes_from(tmp_path):
    result = invoke("-v", "init", str(tmp_path / "none"), "--out", str(tmp_path / "out"))
    assert (result.exit_code, "Traceback" in result.stderr) == (2, True)
    assert invoke("--version").exit_code == 0


def test_threads_wait_without_spinning_unless_the_user_says_otherwise():
    code = "import os; from liebig.base.machine import wait_passively as w; w(); print(os.environ['OMP_WAIT_POLICY'])"
    for told, expected in ({}, "PASSIVE"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE"):
        environment = {k: v for k, v in os.environ.items() if k != "OMP_WAIT_POLICY"} | told
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == expected


@pytest.mark.parametrize("name", sorted(STAGES))
def test_unknown_keys_are_refused_by_every_stage(name, tmp_path):
    result = invoke(*name.split(), "nonsense_key=1", "--out", str(tmp_path / "out"))
    assert result.exit_code == 2
    assert not (tmp_path / "out").exists()


def test_a_stage_without_out_is_one_sentence():
    result = invoke("init", "stdlib:json")
    assert result.exit_code == 2
    assert "--out" in result.stderr


def test_plan_prints_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    recipe = ROOT / "recipes" / "condenser.toml"
    result = invoke("run", str(recipe), "--plan")
    assert result.exit_code == 0
    assert "condenser: liebig pretrain\n" in result.stdout
    assert list(tmp_path.iterdir()) == []
    assert f"liebig run {recipe}" in invoke("queries", "generate", str(recipe)).stderr


@pytest.mark.parametrize("same", [True, False])
def test_two_runs_of_a_recipe_are_compared(tmp_path, monkeypatch, same):
    recipe, out = tmp_path / "r.toml", tmp_path / "out"
    (tmp_path / "corpus.jsonl").write_text('{"_id": "1", "title": "", "text": "Barley grows."}\n')
    recipe.write_text(
        f"[stages.collection]\nkind = 'init'\npaths = ['{tmp_path / 'corpus.jsonl'}']\n"
        "[stages.bm25]\ncollection = '@collection'\n"
    )
    if not same:
        words = iter("ab")
        stage = replace(STAGES["bm25"], run=lambda config, folder: folder.write_text("x", next(words)))
        monkeypatch.setattr("liebig.stages.bm25.STAGE", stage)
    result = invoke("run", str(recipe), "--out", str(out), "--twice")
    assert (result.exit_code, (tmp_path / "out.first").exists()) == ((0, False) if same else (2, True))
    said = "Both runs gave the same bytes" if same else "differ in 1 of"
    assert said in result.output
    assert invoke("run", str(recipe), "--out", str(out), "--twice").exit_code == 2, (
        "nothing is run anew in place"
    )


def test_help_has_no_types_of_python_and_no_type_behind_a_flag():
    for command in ("search", "bm25", "update"):
        text = CliRunner().invoke(make_app(), [command, "--help"]).output
        assert not re.findall(r"<(?:bool|str|int|float|path|list)\b", text)
        assert not re.search(r"\{(?!text|path)", text)  # those are of commands


MISTAKES = [  # the words, and what is said
    (["bulid", "docs"], "No such command 'bulid'. Did you mean 'build'?"),
    (["queries", "generat"], "No such command 'generat'. Did you mean 'generate'?"),
    (["build"], "no source is named, and there is no liebig.toml here."),
    (["build", "nowhere", "--out", "out"], "nowhere: there is no such file or folder."),
    (["build", ".", "--questions", "nowhere", "--out", "out"], "nowhere: there is no such file or folder."),
    (["search", "nowhere"], "nowhere: the folder is not a retriever: it has no retriever.json."),
    (["search", "--bogus"], "No such option: --bogus"),
    (["encode", "."], "there is no folder to write. To fix it: add --out DIR."),
    (["encode", "nowhere", "--out", "out"], "nowhere: there is no such file or folder."),
    (["encode", ".", "--type", "fp8", "--out", "out"], "type = 'fp8'"),
    (["encode", ".", "--overlap", "-1", "--out", "out"], "overlap"),
    (["encode", ".", "windw=3", "--out", "out"], "write window"),
    (["pretrain", "--foo"], "No such option: --foo"),
    (["pretrain", "objectiv.kind=mlm", "--out", "out"], "write objective"),
    (["retrieve", "--out", "out"], "collection is missing. To fix it: give collection with queries."),
    (["evaluate", "a.trec", "--out", "out"], "collections is missing."),
    (["index", "here", "there"], "'there' is one vectors too many."),
]
HEAVY = (
    "torch",
    "transformers",
    "numba",
    "scipy",
    "pyarrow",
    "faiss",
    "onnxruntime",
    "matplotlib",
    "fastapi",
    "typer.rich_utils",
)
MISTAKE = """
import json, sys
from typer.testing import CliRunner
from liebig.cli import make_app

heavy, cases = json.loads(sys.argv[1]), json.loads(sys.argv[2])
for words, said in cases:
    done = CliRunner().invoke(make_app(), words)
    text = " ".join(done.stderr.split())
    assert (done.exit_code, said in text) == (2, True), (words, text)
    assert not set(heavy) & set(sys.modules), (words, set(heavy) & set(sys.modules))
"""


def test_a_mistake_in_the_arguments_is_answered_without_loading_what_computes(tmp_path):
    words = [sys.executable, "-c", MISTAKE, json.dumps(HEAVY), json.dumps(MISTAKES)]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", [name for name in STAGES if STAGES[name].config.model_fields])
def test_the_outline_of_a_stage_has_its_fields_and_their_types(name):
    form = stored_forms()[name]
    outline, config = form.outline(), STAGES[name].config
    assert list(outline.model_fields) == list(config.model_fields)
    for option in form.options:
        field, same = config.model_fields[option.name], outline.model_fields[option.name]
        assert (same.is_required(), _type_names(same.annotation)) == (
            field.is_required(),
            _type_names(field.annotation),
        )


@pytest.mark.parametrize(
    ("words", "options"),
    [
        (["a.trec", "one", "two"], {}),
        (["one", "two"], {"system": "a.trec"}),
        (["one", "system=a.trec", "two"], {}),
        (["recipe.toml", "one", "two"], {}),
    ],
)
def test_the_first_word_of_evaluate_is_the_system_unless_it_is_set(words, options, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("recipe.toml").write_text('system = "a.trec"\n')
    form = stored_forms()["evaluate"]
    recipe, overrides, values = split_words(form, words, options)
    config = recipes.load(STAGES["evaluate"].config, recipe, overrides, values)
    assert (config.system, config.collections) == (Path("a.trec"), (Path("one"), Path("two")))


@pytest.mark.skipif("LIEBIG_SYSTEM" in os.environ or not Path("/proc").is_dir(), reason="there is no /proc")
@pytest.mark.parametrize("command", ["init", "build"])
def test_a_place_that_cannot_be_written_is_one_sentence(command, tmp_path):
    (tmp_path / "a.txt").write_text("barley")
    done = invoke(command, str(tmp_path / "a.txt"), "--out", "/proc/x")
    assert (done.exit_code, done.stderr.count("\n")) == (2, 1)
    assert (
        "the folder cannot be made: No such file or directory. To fix it: give another --out." in done.stderr
    )


def test_liebig_alone_shows_the_commands_to_begin_with():
    result = CliRunner().invoke(make_app(), [])
    assert result.exit_code == 0
    commands = [line.split()[:2] for line in result.stdout.splitlines() if line.startswith("  liebig ")]
    assert commands == [["liebig", "build"], ["liebig", "search"], ["liebig", "serve"]]
