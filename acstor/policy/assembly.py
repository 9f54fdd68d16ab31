"""Assembly of a policy service, by the configuration."""

from oslo_config import cfg

from acstor import exception
from acstor.policy.decision_maker import DecisionMaker
from acstor.policy.evaluation import Similarity
from acstor.policy.settings import PolicySettings
from acstor.policy.topology import Topology


def decision_maker(
    conf: cfg.ConfigOpts, declared: Topology | None, similar: Similarity
) -> DecisionMaker:
    """Return what decides.

    :param declared: the topology, as :func:`topology` returns it.
    :raises ConfigurationError: when values do not fit together, or there is no such plug-in.
    """
    try:
        return DecisionMaker(settings(conf), topology=declared, similarity=similar)
    except exception.UnsupportedError as error:
        raise exception.ConfigurationError(f"[policy] {error}", hint=error.hint) from error


def settings(conf: cfg.ConfigOpts) -> PolicySettings:
    """Return what decisions depend on.

    :raises ConfigurationError: when values do not fit together.
    """
    options = conf.policy
    try:
        return PolicySettings(
            weights=options.weights,
            weight_lambda=options.weight_lambda,
            traffic=options.traffic,
            traffic_floor=options.traffic_floor,
            weight_floor=options.weight_floor,
            weight_ceiling=options.weight_ceiling,
            overload=options.overload,
            overload_extra_min=options.overload_extra_min,
            successive=options.successive,
            cool_down=options.cool_down,
            moved_share_max=options.moved_share_max,
            hysteresis=options.hysteresis,
            quiet_period=options.quiet_period,
            thresholds=options.thresholds,
            threshold_min=options.threshold_min,
            threshold_max=options.threshold_max,
            switch_overload=options.switch_overload,
            forecast=options.forecast,
            horizon=options.horizon,
        )
    except exception.InvalidError as error:
        raise exception.ConfigurationError(f"[policy] {error}", hint=error.hint) from error


def topology(conf: cfg.ConfigOpts) -> Topology | None:
    """Return the declared topology, None where none is.

    :raises ConfigurationError: when the file cannot be read or is malformed, or a threshold policy
        is chosen that needs one.
    """
    path = conf.policy.topology_file
    if path:
        return Topology.load(path)
    if conf.policy.thresholds in {"algorithm2", "uplinks"}:
        raise exception.ConfigurationError(
            f"[policy] thresholds = {conf.policy.thresholds} needs a topology",
            hint="set [policy] topology_file",
        )
    return None
