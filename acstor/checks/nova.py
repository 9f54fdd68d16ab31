"""Checks of Nova's configuration on this machine; nova.conf is read, Nova is not imported."""

import os
import socket

from oslo_config import cfg
from oslo_upgradecheck.upgradecheck import Result

from acstor import exception
from acstor.agent.reconcilers.local_files import known_files, room
from acstor.agent.reconcilers.local_files.states import LocalFileState
from acstor.checks.host import NOT_COMPUTE, is_compute_host
from acstor.checks.verdict import failure, failure_of, success, warning
from acstor.drivers.nova.image_links import nova_settings

WEIGHER = "acstor.scheduler.nova.weigher.BootCoverageWeigher"
FILTER = "acstor.scheduler.nova.filter.DataPlaneFilter"
_ALL_WEIGHERS = "nova.scheduler.weights.all_weighers"
_ALL_FILTERS = "nova.scheduler.filters.all_filters"


def check_image_links(conf: cfg.ConfigOpts) -> Result:
    """Check that Nova can use links in its image cache, under the settings that it has."""
    if not is_compute_host(conf):
        return success(NOT_COMPUTE)
    if not conf.image_links.enabled:
        return warning(
            "[image_links] enabled = false: Nova downloads every image; set it to true to have "
            "instances use the images of this host"
        )
    try:
        settings = nova_settings.read(conf.image_links.nova_config_file)
    except exception.AcstorError as error:
        return failure_of(error)
    if settings.refusal is not None:
        return failure(f"no links are planted, Nova downloads every image: {settings.refusal}")
    if not os.path.isdir(settings.instances_path):
        return warning(
            f"{settings.instances_path} does not exist: start nova-compute once, or correct "
            "[image_links] nova_config_file"
        )
    return success(f"links are planted in {settings.base_directory}")


def check_local_files(conf: cfg.ConfigOpts) -> Result:
    """Check that local files can be made, and that those that were are in order."""
    if not conf.local_files.enabled:
        return success("[local_files] enabled = false: guests read images through the data plane")
    if not conf.image_links.enabled:
        return warning(
            "[local_files] enabled = true has no effect: set [image_links] enabled = true as well"
        )
    try:
        base = nova_settings.read(conf.image_links.nova_config_file).base_directory
    except exception.AcstorError as error:
        return failure_of(error)
    refusal = room.refusal(base)
    if refusal is not None:
        return failure(f"no local files are made: {refusal}")
    found = known_files.load(known_files.path_in(conf.state_path))
    files = found.files if found else {}
    for image_id, known in files.items():
        if known.reason and known.state in (LocalFileState.WAITING, LocalFileState.UNLINKING):
            return warning(f"local file of image {image_id} is {known.state}: {known.reason}")
    linked = sum(known.state is LocalFileState.LINKED for known in files.values())
    return success(f"{linked} of {len(files)} local files in use, below {base}")


def check_host_name(conf: cfg.ConfigOpts) -> Result:
    """Check that Nova and ACStor call this host by the same name."""
    if not conf.image_links.enabled:
        return success("image links are off on this machine")
    nova = read_options(conf, [cfg.StrOpt("host", default=socket.gethostname())], None)
    if nova is None:
        return success("Nova's configuration is not readable; see the check before")
    # The schedulers' second try is the name of the node, which libvirt takes from the kernel.
    if conf.host not in {nova.host.lower(), socket.gethostname().lower()}:
        return warning(
            f"Nova calls this host {nova.host}, ACStor calls it {conf.host}: the scheduler's "
            "weigher and filter do not find it; set [DEFAULT] host to the same name (only before "
            "the host joins, or after 'acstor host forget')"
        )
    return success(f"both say {conf.host}")


def check_scheduler(conf: cfg.ConfigOpts) -> Result:
    """Check that nova-scheduler, where it reads the same file, finds the weigher and the filter."""
    options = [
        cfg.ListOpt("weight_classes", default=[_ALL_WEIGHERS]),
        cfg.MultiStrOpt("available_filters", default=[_ALL_FILTERS]),
        cfg.ListOpt("enabled_filters", default=[]),
    ]
    nova = read_options(conf, options, "filter_scheduler")
    if nova is None:
        return success("no Nova configuration on this machine")
    scheduler = nova.filter_scheduler
    if FILTER.rpartition(".")[2] in scheduler.enabled_filters:
        if FILTER not in scheduler.available_filters:
            return failure(
                "[filter_scheduler] enabled_filters names DataPlaneFilter, available_filters does "
                f"not: nova-scheduler does not start; add available_filters = {FILTER}"
            )
        if _ALL_FILTERS not in scheduler.available_filters:
            return warning(
                "[filter_scheduler] available_filters lacks Nova's own filters; add "
                f"available_filters = {_ALL_FILTERS}"
            )
    if WEIGHER not in scheduler.weight_classes:
        return success("Nova's configuration on this machine does not name the weigher")
    if _ALL_WEIGHERS not in scheduler.weight_classes:
        return warning(
            f"[filter_scheduler] weight_classes lacks {_ALL_WEIGHERS}: Nova's own weighers are "
            f"off; write weight_classes = {_ALL_WEIGHERS},{WEIGHER}"
        )
    return success("weigher and filter are named as they should be")


def read_options(
    conf: cfg.ConfigOpts, options: list[cfg.Opt], group: str | None
) -> cfg.ConfigOpts | None:
    """Return some of Nova's options; None where its files cannot be read."""
    nova = cfg.ConfigOpts()
    nova.register_opts(options, group=group)
    try:
        nova(
            [],
            project="nova",
            default_config_files=list(conf.image_links.nova_config_file),
            default_config_dirs=cfg.find_config_dirs("nova"),
            use_env=False,
        )
    except cfg.Error:
        return None
    return nova
