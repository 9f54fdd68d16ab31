"""Queues in the broker: of topics of RPC, and of pools of notifications, whose names are alike."""

import re

from acstor.conf import preload, registrar, worker
from acstor.rpc import agent_server, worker_wake
from acstor.telemetry import host_states


def test_no_pool_of_notifications_has_the_name_of_a_topic() -> None:
    topics = {agent_server.TOPIC, worker_wake.TOPIC, host_states.TOPIC}
    pools = [
        option.default
        for module in (preload, registrar, worker)
        for option in module.OPTIONS
        if re.search("notification_pool$", option.name)
    ]
    assert len(pools) == 3
    assert not topics & set(pools)
    assert len(set(pools)) == 3
