"""The table of operations, beside what follows from it."""

import ast
import inspect
import pathlib
import re

import pytest

from acstor.control import parameters
from acstor.control.operations import BY_MESSAGE, OPERATIONS, Door, Operation, Target
from acstor.dataplane.chunks import Chunks
from acstor.dataplane.host import DataPlaneHost
from acstor.dataplane.images import Images
from acstor.dataplane.placement import Placement
from acstor.dataplane.volumes.folds.folds import VolumeFolds
from acstor.dataplane.volumes.freezes import VolumeFreezes
from acstor.dataplane.volumes.lifecycle.closing import VolumeClosing
from acstor.dataplane.volumes.lifecycle.giving_up import VolumeGivingUp
from acstor.dataplane.volumes.lifecycle.opening import VolumeOpening
from acstor.dataplane.volumes.logs.volumes_aside import VolumesAside
from acstor.dataplane.volumes.pushes import VolumePushes
from acstor.dataplane.volumes.settings import VolumeSettings
from acstor.dataplane.volumes.statuses import VolumeStatuses
from acstor.native import DataPlane
from acstor.rpc.agent_server import version_of
from testbed.doubles.memory_runtime import MemoryRuntime

ROOT = pathlib.Path(__file__).parents[3]
PAGE = ROOT / "doc/source/reference/protocols/admin.rst"
STUB = ROOT / "acstor/_dataplane.pyi"
TARGETS = {
    Target.HOST: DataPlaneHost,
    Target.CHUNKS: Chunks,
    Target.IMAGES: Images,
    Target.PLACEMENT: Placement,
    Target.VOLUME_STATUSES: VolumeStatuses,
    Target.VOLUME_OPENING: VolumeOpening,
    Target.VOLUME_CLOSING: VolumeClosing,
    Target.VOLUME_PUSHES: VolumePushes,
    Target.VOLUME_FREEZES: VolumeFreezes,
    Target.VOLUME_SETTINGS: VolumeSettings,
    Target.VOLUME_FOLDS: VolumeFolds,
    Target.VOLUME_GIVING_UP: VolumeGivingUp,
    Target.VOLUMES_ASIDE: VolumesAside,
}
NAMES = [operation.name for operation in OPERATIONS]
WITH_PARAMETERS = [operation for operation in OPERATIONS if operation.parameters]


def test_no_operation_is_declared_twice() -> None:
    assert len(set(NAMES)) == len(NAMES)
    assert len({operation.message for operation in OPERATIONS}) == len(NAMES)


def test_doors_are_as_narrow_as_the_security_page_says() -> None:
    def behind(door: Door) -> set[str]:
        return {operation.name for operation in OPERATIONS if door in operation.doors}

    assert behind(Door.CONTROL) == {"volume.host", "volume.open", "volume.close", "volume.status"}
    assert behind(Door.BUS) == {
        "volume.status",
        "volume.push",
        "volume.freeze",
        "volume.thaw",
        "volume.resize",
        "volume.set_durability",
        "volume.set_limits",
    }
    assert behind(Door.ADMIN) == set(NAMES) - {"volume.host"}


@pytest.mark.parametrize("operation", OPERATIONS, ids=NAMES)
def test_target_has_a_method_with_these_parameters(operation: Operation) -> None:
    if operation.target is Target.RUNTIME:
        stub = _signatures(ast.parse(STUB.read_text()), "DataPlane")
        assert len(stub[operation.method]) == len(operation.parameters)
        return
    method = getattr(TARGETS[operation.target], operation.method)
    _, *taken = inspect.signature(method).parameters.values()
    wanted = [one for one in taken if one.default is inspect.Parameter.empty]
    assert len(wanted) <= len(operation.parameters) <= len(taken)
    assert all(one.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for one in taken)


@pytest.mark.parametrize("operation", WITH_PARAMETERS, ids=lambda operation: operation.name)
def test_page_has_a_row_with_these_parameters(operation: Operation) -> None:
    pattern = rf"\* - ``{re.escape(operation.name)}``\n\s+- (.*?)(?=\n\s+- |\n\s+\* - |\n\n)"
    rows = re.findall(pattern, PAGE.read_text() + "\n\n", re.DOTALL)
    assert rows, f"{PAGE.name} does not describe {operation.name}"
    told = re.findall(r"``([a-z_]+)``", rows[0])
    for parameter in operation.parameters:
        assert parameter.name in told, f"{PAGE.name}: {operation.name}: {parameter.name}"


def test_page_describes_nothing_else() -> None:
    methods = PAGE.read_text().partition("\nMethods\n")[2]
    told = re.findall(r"^   \* - ``([a-z_.]+)``$", methods, re.MULTILINE)
    assert set(told) == set(NAMES)


def test_messages_ask_for_the_version_of_the_table() -> None:
    assert {message: version_of(message) for message in BY_MESSAGE} == {
        operation.message: operation.bus_version for operation in BY_MESSAGE.values()
    }
    assert all(operation.bus_version for operation in BY_MESSAGE.values())


@pytest.mark.parametrize("operation", OPERATIONS, ids=NAMES)
def test_unknown_and_missing_arguments_are_refused(operation: Operation) -> None:
    with pytest.raises(parameters.ParameterError, match="has no parameter 'more'"):
        operation.checked({"more": 1})
    required = [one for one in operation.parameters if not one.is_allowed(None)]
    if required:
        with pytest.raises(parameters.ParameterError, match=f"{required[0].name} must be"):
            operation.checked({})


def _signatures(tree: ast.AST, name: str) -> dict[str, list[str]]:
    (found,) = [node for node in ast.walk(tree) if getattr(node, "name", None) == name]
    assert isinstance(found, ast.ClassDef)
    return {
        node.name: [argument.arg for argument in node.args.args][1:]
        for node in found.body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    }


@pytest.mark.parametrize(
    "operation",
    [operation for operation in OPERATIONS if operation.target is Target.RUNTIME],
    ids=lambda operation: operation.name,
)
def test_errors_of_the_runtime_say_what_was_asked(operation: Operation) -> None:
    names = {one.name for one in operation.parameters}
    assert operation.subject
    assert set(re.findall(r"\{(\w+)\}", operation.subject)) <= names


def test_double_of_the_runtime_is_the_data_plane_of_the_stub() -> None:
    """Same methods, parameters and defaults; what tests ask of the double besides has no stub."""
    stub = _signatures(ast.parse(STUB.read_text()), "DataPlane")
    assert stub.keys() <= {name for name in vars(DataPlane) if not name.startswith("_")}
    for name, parameters_of_stub in stub.items():
        found = inspect.signature(getattr(MemoryRuntime, name)).parameters
        assert list(found)[1:] == parameters_of_stub, name
        real = inspect.signature(getattr(DataPlane, name)).parameters
        optional = {one.name for one in real.values() if one.default is not one.empty}
        assert {one.name for one in found.values() if one.default is not one.empty} == optional
