"""The contents of the package: types, docstrings, the programs of its pages."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import weir
from weir import _weir

HERE = Path(__file__).resolve().parent
PACKAGE = HERE.parent
PROGRAMS = re.findall(r"```python\n(.*?)```", (PACKAGE / "README.md").read_text(), re.S)
EXAMPLES = sorted((PACKAGE / "examples").glob("*.py"))
ALONE = [example for example in EXAMPLES if example.stem != "foreign"]  # it needs a server


def test_the_installed_package_is_what_is_tested() -> None:
    assert PACKAGE not in Path(weir.__file__).resolve().parents
    assert (Path(weir.__file__).parent / "py.typed").exists()


@pytest.mark.parametrize("program", PROGRAMS, ids=range(len(PROGRAMS)))
def test_programs_of_the_readme_run_as_printed(program: str, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, timeout=60)


@pytest.mark.parametrize("example", ALONE, ids=lambda path: path.stem)
def test_examples_run(example: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, example], cwd=tmp_path, check=True, timeout=60)


def test_types_are_those_of_the_stub(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path)]
    subprocess.run(command + ["-p", "weir"], cwd=tmp_path, check=True)
    files = [*HERE.glob("*.py"), *EXAMPLES]
    for number, program in enumerate(PROGRAMS):
        files.append(tmp_path / f"readme_{number}.py")
        files[-1].write_text(program)
    subprocess.run(command + [str(path) for path in files], cwd=HERE, check=True)


def test_the_stub_names_what_the_module_has() -> None:
    stub = (Path(weir.__file__).parent / "_weir.pyi").read_text()
    parts = re.split(r"^(?:@final\n)?class (\w+).*:\n", stub, flags=re.M)
    stubbed = dict(zip(parts[1::2], parts[2::2], strict=True))
    skipped = {"Keys"}  # an iterator; the stub says Iterator
    classes = {name: kind for name, kind in vars(_weir).items() if inspect.isclass(kind)}
    assert set(classes) - skipped <= set(stubbed)
    for name, kind in classes.items():
        members = {member for member in vars(kind) if not member.startswith("__")}
        named = set(re.findall(r"^    def (\w+)\(", stubbed[name], re.M))
        assert members == {member for member in named if not member.startswith("__")}, name


def test_help_shows_the_default_of_a_timeout() -> None:
    methods: list[Callable[..., object]] = [
        weir.Group.claim,
        weir.Reader.next_page,
        weir.Topic.latest,
    ]
    for method in methods:
        assert inspect.signature(method).parameters["timeout"].default == 0.0


def test_editors_that_read_the_stub_alone_show_docstrings() -> None:
    def docstring(of: object) -> str:
        text = inspect.getdoc(of) or ""
        return " ".join(text.split("\n\n")[0].split())

    stub = ast.parse((Path(weir.__file__).parent / "_weir.pyi").read_text())
    documented = (ast.ClassDef, ast.FunctionDef)
    nodes = [node for node in stub.body if isinstance(node, documented)]
    for node in nodes:
        thing = getattr(_weir, node.name, None)
        if thing is None:
            continue  # a buffer without a name in the module
        for member in [node, *node.body]:
            if not isinstance(member, documented) or member.name.startswith("_"):
                continue
            of = thing if member is node else getattr(thing, member.name)
            written = " ".join((ast.get_docstring(member) or "").split())
            assert written == docstring(of), f"{node.name}.{member.name}"


def test_everything_public_is_documented() -> None:
    for name in weir.__all__:
        thing = getattr(weir, name)
        if name.startswith("__") or isinstance(thing, str):
            continue
        assert thing.__doc__, name
        if inspect.isclass(thing) and thing.__module__ == "weir":
            for member, value in vars(thing).items():
                if not member.startswith("_"):
                    assert value.__doc__, f"{name}.{member}"
