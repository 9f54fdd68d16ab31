"""The clock and the origin of the agent's tests."""

from tests.unit.agent.conftest import clock, origin

__all__ = ["clock", "origin"]
