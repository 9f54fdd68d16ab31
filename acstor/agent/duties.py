"""Which duties an agent has, by the configuration."""

from collections.abc import Callable

from oslo_config import cfg

from acstor.agent.duty import Duty


def build(conf: cfg.ConfigOpts, look_soon: Callable[[], None]) -> tuple[Duty, ...]:
    """Return the duties of an agent, in the order in which a look comes to them.

    :param look_soon: has the next look now; for duties that notice a change between two looks.
    """
    del conf, look_soon  # what every agent does is in Agent itself
    return ()
