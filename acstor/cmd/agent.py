"""``acstor-agent``: the control process of a compute host. It may restart at any time."""

import logging
from collections.abc import Sequence

from oslo_config import cfg

from acstor import exception
from acstor.cmd import daemon

LOG = logging.getLogger("acstor.agent")

_WILDCARDS = frozenset({"0.0.0.0", "[::]"})  # noqa: S104 - compared with, never bound


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the agent until a signal; return the exit status."""
    return daemon.run("acstor-agent", LOG, _run, arguments)


def _run(conf: cfg.ConfigOpts) -> int:
    from acstor.agent import assembly
    from acstor.agent.agent import ORIGIN_DEADLINE, Agent
    from acstor.agent.metrics import AgentMetrics
    from acstor.control.client import AdminClient
    from acstor.dataplane.settings import advertised_address
    from acstor.http_server import metrics as metrics_endpoint
    from acstor.origin import configured
    from acstor.origin.opening import open_origin
    from acstor.rpc import transport
    from acstor.rpc.agent_server import AgentServer, AnnouncementEndpoint
    from acstor.rpc.announcements import Announcements

    metrics = AgentMetrics()
    data_plane = AdminClient(conf.dataplane.admin_socket, timeout=2.0)

    def text() -> str:
        try:
            return metrics.text(str(data_plane.call("metrics")))
        except exception.AcstorError:
            return metrics.text()  # its absence is a metric of the agent

    endpoint = metrics_endpoint.of_options(
        conf, "agent", text=text, is_healthy=lambda: agent.is_healthy()
    )
    address, _, port = endpoint.address.rpartition(":")
    if address in _WILDCARDS:
        address = advertised_address(conf)
    built = assembly.build(conf, metrics)
    messages: Announcements | None = None
    server: AgentServer | None = None
    agent = Agent(
        conf,
        open_origin=lambda: open_origin(
            configured.origin_url(conf), min(ORIGIN_DEADLINE, conf.origin.timeout)
        ),
        metrics=metrics,
        metrics_address=f"{address}:{port}",
        announce_ring=lambda generation: (
            messages.announce_ring(generation) if messages is not None else None
        ),
        reconcilers=built,
    )
    if transport.is_configured(conf):
        messages = Announcements(conf)
        messages.start()
        announced = AnnouncementEndpoint(agent.hear_ring, agent.hear_decision)
        server = AgentServer(conf, conf.host, [announced, *assembly.endpoints(conf, built)])
        server.start()
    try:
        daemon.serve(agent, endpoint, LOG)
    finally:
        if server is not None:
            server.stop(5.0)
        if messages is not None:
            messages.stop(5.0)
    return 0
