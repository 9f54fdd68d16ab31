"""Assembly of an agent's reconcilers, by the configuration."""

from collections.abc import Callable, Iterable, Mapping

from oslo_config import cfg

from acstor.agent.hand_over_endpoint import HandOverEndpoint
from acstor.agent.metrics import AgentMetrics
from acstor.agent.preload_endpoint import PreloadEndpoint
from acstor.agent.reconciler import Reconciler
from acstor.agent.reconcilers import image_links
from acstor.agent.reconcilers.boot_profiles import BootProfiles
from acstor.agent.reconcilers.hand_over import HandOver
from acstor.agent.reconcilers.host_state import HostStateReconciler
from acstor.agent.reconcilers.local_files import assembly as local_files
from acstor.agent.reconcilers.preloading import Preloading
from acstor.agent.reconcilers.revocations import Revocations
from acstor.agent.reconcilers.working_sets import WorkingSets
from acstor.agent.revocation_endpoint import RevocationEndpoint
from acstor.agent.volume_endpoint import VolumeEndpoint
from acstor.control.client import AdminClient
from acstor.origin import configured, mounts
from acstor.preload.admission import Limits
from acstor.rpc import transport
from acstor.rpc.agent_client import AgentClient
from acstor.rpc.signature import SignedEndpoint, Signer, Verifier, secrets_of
from acstor.telemetry import traffic
from acstor.telemetry.disk_watch import DiskWatch
from acstor.telemetry.host_states import HostStateSender

WARM_SET_TIMEOUT = 10.0
"""Seconds for a host to tell a warm set: one that is dead costs as long."""


def build(conf: cfg.ConfigOpts, metrics: AgentMetrics) -> tuple[Reconciler, ...]:
    """Return the reconcilers of an agent, in the order in which a pass comes to them."""
    working_sets = WorkingSets(
        f"{conf.state_path}/agent",
        conf.agent.working_set_interval,
        on_coverage=metrics.set_coverage,
    )
    link_speed = _LinkSpeed()
    links = image_links.build(conf, metrics.set_links)
    preloading = _preloading(conf, metrics, link_speed)
    files = None
    if links is not None:
        files = local_files.build(
            conf, links, preloading.kept_whole, metrics.set_local_files, metrics.note_local_file
        )
    revocations = _revocations(conf, metrics)
    if files is not None:
        preloading.follow_local_files(files.state)
        revocations.follow_local_files(files.state)
    capturing = _capturing(conf, metrics)
    restoring = _restoring(conf)
    return (
        revocations,
        *((links,) if links is not None else ()),
        working_sets,
        BootProfiles(f"{conf.state_path}/agent", conf.agent.working_set_interval),
        preloading,
        *((files,) if files is not None else ()),
        *((capturing,) if capturing is not None else ()),
        *((restoring,) if restoring is not None else ()),
        _hand_over(conf, metrics, working_sets, preloading),
        _host_state(conf, metrics, lambda: working_sets.coverage, link_speed),
    )


def endpoints(conf: cfg.ConfigOpts, reconcilers: Iterable[Reconciler]) -> list[object]:
    """Return what the reconcilers, and the data plane for its volumes, answer to other hosts."""
    # One for all: a call is taken once, whichever endpoint answers.
    verifier = Verifier(conf.host, secrets_of(conf))
    answering = [
        *(
            PreloadEndpoint(conf.host, reconciler)
            for reconciler in reconcilers
            if isinstance(reconciler, Preloading)
        ),
        *(
            HandOverEndpoint(conf.host, reconciler, AdminClient(conf.dataplane.admin_socket))
            for reconciler in reconcilers
            if isinstance(reconciler, HandOver)
        ),
        *(
            RevocationEndpoint(conf.host, reconciler)
            for reconciler in reconcilers
            if isinstance(reconciler, Revocations)
        ),
        *_capture_endpoints(conf, reconcilers),
        VolumeEndpoint(conf.host, AdminClient(conf.dataplane.admin_socket)),
    ]
    return [SignedEndpoint(endpoint, conf.host, verifier) for endpoint in answering]


class _LinkSpeed:
    """Speed of the link, which one reconciler measures and another needs; None: not known."""

    value: float | None = None


def _preloading(conf: cfg.ConfigOpts, metrics: AgentMetrics, link_speed: _LinkSpeed) -> Preloading:
    return Preloading(
        conf.host,
        f"{conf.state_path}/agent/preloads.json",
        AdminClient(conf.dataplane.admin_socket),
        Limits(
            rate=conf.preload.rate,
            rate_max=conf.preload.rate_max,
            link_share=conf.preload.link_share,
            margin=conf.preload.deadline_margin,
        ),
        keep_ended=conf.preload.keep_ended,
        link_bytes_per_s=lambda: link_speed.value,
        on_change=metrics.set_preloads,
    )


def _capturing(conf: cfg.ConfigOpts, metrics: AgentMetrics) -> Reconciler | None:
    """Return what captures disks; most hosts have that off, and do not load it."""
    if not conf.captures.enabled:
        return None
    from acstor.agent.captures import assembly as captures

    return captures.build(
        conf, metrics.set_captures, lambda outcome: metrics.captures_ended.labels(outcome).inc()
    )


def _restoring(conf: cfg.ConfigOpts) -> Reconciler | None:
    """Return what restores disks in place; a host that captures none does not load it."""
    if not conf.captures.enabled:
        return None
    from acstor.agent.restores import assembly as restores

    return restores.build(conf)


def _capture_endpoints(conf: cfg.ConfigOpts, reconcilers: Iterable[Reconciler]) -> Iterable[object]:
    """Return what answers about captures and restores."""
    if not conf.captures.enabled:
        return []
    from acstor.agent.capture_endpoint import CaptureEndpoint
    from acstor.agent.captures.reconciler import CaptureReconciler
    from acstor.agent.restore_endpoint import RestoreEndpoint
    from acstor.agent.restores.reconciler import RestoreReconciler

    found: list[object] = []
    for reconciler in reconcilers:
        if isinstance(reconciler, CaptureReconciler):
            found.append(CaptureEndpoint(conf.host, reconciler))
        elif isinstance(reconciler, RestoreReconciler):
            found.append(RestoreEndpoint(conf.host, reconciler))
    return found


def _revocations(conf: cfg.ConfigOpts, metrics: AgentMetrics) -> Revocations:
    return Revocations(
        f"{conf.state_path}/agent",
        AdminClient(conf.dataplane.admin_socket),
        on_discarded=metrics.revoked_chunks.inc,
    )


def _hand_over(
    conf: cfg.ConfigOpts, metrics: AgentMetrics, working_sets: WorkingSets, preloading: Preloading
) -> HandOver:
    def ask(host: str, image: str) -> object:
        secrets = secrets_of(conf)
        with transport.opened(conf) as opened:
            signer = Signer(secrets[0] if secrets else None)
            agents = AgentClient(opened, WARM_SET_TIMEOUT, signer)
            found: object = agents.call(host, "hand_over_read", image=image)
            return found

    return HandOver(
        AdminClient(conf.dataplane.admin_socket),
        working_sets,
        preloading,
        ask if transport.is_configured(conf) else None,
        size_max=conf.agent.hand_over_size_max,
        timeout=conf.agent.hand_over_timeout,
        is_wanted=conf.agent.hand_over_warm_sets,
        on_end=lambda kind, outcome: metrics.hand_overs.labels(str(kind), outcome).inc(),
        on_list=lambda outcome: metrics.hand_over_lists.labels(outcome).inc(),
    )


def _host_state(
    conf: cfg.ConfigOpts,
    metrics: AgentMetrics,
    coverage: Callable[[], Mapping[str, float]],
    link_speed: _LinkSpeed,
) -> HostStateReconciler:
    def note(found: traffic.ExtraTraffic) -> None:
        link_speed.value = found.link_bytes_per_s
        metrics.set_traffic(found.extra_in, found.extra_out, found.link_bytes_per_s)
        metrics.set_moved(found.moved_in, found.moved_out)

    sender = HostStateSender(
        lambda: transport.open_transport(conf),
        lambda outcome: metrics.host_states.labels(outcome).inc(),
    )
    interval = conf.agent.disk_interval
    return HostStateReconciler(
        conf.host,
        conf.agent.state_interval,
        data_plane=AdminClient(conf.dataplane.admin_socket),
        interfaces=traffic.NetlinkInterfaces(conf.agent.interfaces, conf.agent.link_speed),
        is_origin_remote=mounts.is_remote(configured.home_url(conf)),
        coverage=coverage,
        publisher=sender if transport.is_configured(conf) else None,
        disk_watch=DiskWatch(conf.store.path, interval) if interval > 0 else None,
        on_traffic=note,
        on_load=metrics.set_load,
        requests_max=conf.peer.requests_inflight_max,
    )
