"""The objects of a data plane's volumes: composed, not inherited, and without circles."""

import ast
import graphlib
import pathlib

ROOT = pathlib.Path(__file__).parents[3]
PACKAGE = "acstor.dataplane.volumes"


def modules() -> dict[str, ast.Module]:
    """Return the modules of the package by name, parsed."""
    found = {}
    for path in (ROOT / PACKAGE.replace(".", "/")).rglob("*.py"):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        found[name] = ast.parse(path.read_text())
    return found


def imported(tree: ast.Module) -> set[str]:
    """Return what a module imports, for type checkers and inside of functions, too."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def test_modules_import_each_other_in_no_circle() -> None:
    trees = modules()
    arrows = {name: imported(tree) & trees.keys() - {PACKAGE} for name, tree in trees.items()}
    assert len(arrows[f"{PACKAGE}.volumes"]) > 20
    graphlib.TopologicalSorter(arrows).prepare()


def test_no_object_inherits_from_another() -> None:
    classes = [
        node
        for tree in modules().values()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    ]
    names = {one.name for one in classes}
    assert "VolumeTable" in names
    bases = {(one.name, ast.unparse(base)) for one in classes for base in one.bases}
    assert {pair for pair in bases if pair[1].rpartition(".")[2] in names} == set()
