"""Who may import whom: a lower level never imports a higher one, and vendor libraries stay in their rooms."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "orchestrator"
LEVELS = [
    ["errors"],
    ["precision", "results", "masking", "yaml_value", "user_code"],
    ["devices", "settings"],
    ["experiment", "measure"],
    ["trial", "channel", "loader", "package", "decide", "checkpoint", "journal", "tracking", "options"],
    ["frameworks", "run_context", "overrides", "command_line"],
    ["fleet"],
    ["report", "sweep", "cluster"],
    ["run", "__main__"],
]
LEVEL = {room: level for level, rooms in enumerate(LEVELS) for room in rooms}
ALLOWED = {
    "ray": ("fleet/", "sweep/", "cluster.py"),
    "mlflow": ("tracking/mlflow",),
    "torch": ("frameworks/torch", "devices/", "measure/"),
    "tensorflow": ("frameworks/tensorflow", "devices/", "measure/"),
}
FILES = sorted(path for path in ROOT.rglob("*.py") if path != ROOT / "__init__.py")


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("path", FILES, ids=name)
def test_a_lower_level_never_imports_a_higher_one(path: Path):
    room = path.relative_to(ROOT).parts[0].removesuffix(".py")
    for imported in imports(path):
        package, *rest = imported.split(".")
        if package == "orchestrator" and rest[0] in LEVEL:
            assert LEVEL[rest[0]] <= LEVEL[room], f"{name(path)} imports {imported}"


@pytest.mark.parametrize("path", FILES, ids=name)
def test_vendor_libraries_are_imported_in_their_rooms_only(path: Path):
    for imported in imports(path):
        rooms = ALLOWED.get(imported.partition(".")[0])
        assert rooms is None or name(path).startswith(rooms), f"{name(path)} imports {imported}"


def test_every_room_has_a_level():
    assert {path.relative_to(ROOT).parts[0].removesuffix(".py") for path in FILES} == set(LEVEL)


@pytest.mark.parametrize("statement", ["import orchestrator", "import orchestrator.command_line"])
def test_the_package_and_its_help_need_neither_torch_nor_ray_nor_mlflow(statement: str):
    heavy = "{'torch', 'ray', 'mlflow', 'tensorflow'}"
    code = f"import sys; {statement}; print(sorted({heavy} & set(sys.modules)))"
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert answer.stdout.strip() == "[]"
