"""Errors of the simulator."""

from acstor.exception import InvalidError


class ScenarioError(InvalidError):
    """A scenario, a topology or a traffic pattern that cannot be."""

    default_hint = (
        "python -m sim list names the scenarios; their format is in doc/source/contributor"
    )
