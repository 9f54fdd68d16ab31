"""The states of the agent.

::

    starting --ring_applied--> active --degraded--> degraded
       |   ^                    |  ^                 |  |
       |   '--(degraded: stays) |  '----recovered----'  |
       |                  drain |  undrain              | drain
       |                        v  ^                    |
       |--drain------------> draining <-----------------'
       '--stop (from each)--> stopping --stopped--> stopped
"""

import enum

from acstor.states import TransitionTable


class AgentState(enum.Enum):
    """State of the agent."""

    STARTING = "starting"
    """The data plane has not been given a ring yet, or does not answer yet."""
    ACTIVE = "active"
    """Member, ring applied, images followed."""
    DEGRADED = "degraded"
    """Something is missing (data plane, origin, coordination); the last ring stays in use."""
    DRAINING = "draining"
    """The host is asked to leave the ring's work: it owns nothing and refuses peers."""
    STOPPING = "stopping"
    """Leaving the membership."""
    STOPPED = "stopped"
    """Nothing runs any more; the data plane goes on."""


class AgentEvent(enum.Enum):
    """Event of the agent."""

    RING_APPLIED = "ring_applied"
    """The data plane uses the published ring and nothing is missing."""
    DEGRADED = "degraded"
    """A pass found something missing."""
    RECOVERED = "recovered"
    """A pass found nothing missing."""
    DRAIN = "drain"
    UNDRAIN = "undrain"
    STOP = "stop"
    STOPPED = "stopped"


_S, _E = AgentState, AgentEvent

TRANSITIONS = TransitionTable[AgentState, AgentEvent](
    {
        (_S.STARTING, _E.RING_APPLIED): _S.ACTIVE,
        (_S.STARTING, _E.DEGRADED): _S.STARTING,
        (_S.STARTING, _E.RECOVERED): _S.STARTING,  # nothing is missing but the first ring
        (_S.STARTING, _E.DRAIN): _S.DRAINING,
        (_S.STARTING, _E.UNDRAIN): _S.STARTING,
        (_S.STARTING, _E.STOP): _S.STOPPING,
        (_S.ACTIVE, _E.RING_APPLIED): _S.ACTIVE,
        (_S.ACTIVE, _E.DEGRADED): _S.DEGRADED,
        (_S.ACTIVE, _E.RECOVERED): _S.ACTIVE,
        (_S.ACTIVE, _E.DRAIN): _S.DRAINING,
        (_S.ACTIVE, _E.UNDRAIN): _S.ACTIVE,
        (_S.ACTIVE, _E.STOP): _S.STOPPING,
        (_S.DEGRADED, _E.RING_APPLIED): _S.ACTIVE,
        (_S.DEGRADED, _E.DEGRADED): _S.DEGRADED,
        (_S.DEGRADED, _E.RECOVERED): _S.ACTIVE,
        (_S.DEGRADED, _E.DRAIN): _S.DRAINING,
        (_S.DEGRADED, _E.UNDRAIN): _S.DEGRADED,
        (_S.DEGRADED, _E.STOP): _S.STOPPING,
        (_S.DRAINING, _E.RING_APPLIED): _S.DRAINING,
        (_S.DRAINING, _E.DEGRADED): _S.DRAINING,
        (_S.DRAINING, _E.RECOVERED): _S.DRAINING,
        (_S.DRAINING, _E.DRAIN): _S.DRAINING,
        (_S.DRAINING, _E.UNDRAIN): _S.ACTIVE,
        (_S.DRAINING, _E.STOP): _S.STOPPING,
        (_S.STOPPING, _E.STOPPED): _S.STOPPED,
    }
)

next_state = TRANSITIONS.after
