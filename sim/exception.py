"""What the simulator refuses."""

from acstor.exception import ExhaustedError, InvalidError


class ScenarioError(InvalidError):
    """A scenario, a topology or a traffic pattern that cannot be."""

    default_hint = (
        "python -m sim list names the scenarios; their format is in doc/source/contributor"
    )


class CapacityError(ExhaustedError):
    """A run outgrew the tables that were made for it."""

    default_hint = "this is a fault of the simulator: report it with the scenario"
