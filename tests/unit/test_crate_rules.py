"""Rules for other people's crates: those taken and those refused."""

import importlib.util
import pathlib
from types import ModuleType

import pytest

TOOL = pathlib.Path(__file__).parents[2] / "tools" / "crate_rules.py"


@pytest.fixture(scope="module")
def rules() -> ModuleType:
    spec = importlib.util.spec_from_file_location("crate_rules", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("MIT", True),
        ("GPL-3.0", False),
        ("GPL-3.0 OR MIT", True),
        ("MIT/Apache-2.0", True),
        ("(MIT OR GPL-3.0) AND Unicode-3.0", False),
        ("Apache-2.0 WITH LLVM-exception OR GPL-2.0", True),
        ("none", False),
    ],
)
def test_licence_expressions(rules: ModuleType, expression: str, expected: bool) -> None:
    allowed = {"MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"}
    assert rules.is_allowed(expression, allowed) is expected


def test_crate_from_elsewhere_twice_and_with_a_denied_feature_is_told(rules: ModuleType) -> None:
    crate = {"id": "1", "name": "rustls", "version": "0.23.1", "license": "MIT", "source": "git+x"}
    other = {**crate, "id": "2", "version": "0.22.0", "source": rules.REGISTRY}
    bans = {"skip": [], "features": [{"crate": "rustls", "deny": ["tls12"]}]}
    assert list(rules.check_sources([crate, other])) == ["rustls 0.23.1: from git+x"]
    assert list(rules.check_doubles([crate, other], {"bans": bans})) == ["rustls: 0.22.0, 0.23.1"]
    found = {
        "packages": [crate, other],
        "resolve": {"nodes": [{"id": "1", "features": ["tls12", "std"]}]},
    }
    assert list(rules.check_features(found, {"bans": bans})) == ["rustls: feature tls12"]
