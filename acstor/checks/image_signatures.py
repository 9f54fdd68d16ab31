"""Check that this machine takes signed images only, and that it can."""

from oslo_config import cfg
from oslo_upgradecheck.upgradecheck import Result

from acstor import exception
from acstor.checks.verdict import failure, failure_of, success, warning
from acstor.repository.signing.key_files import public_key_of, read_private_key
from acstor.repository.signing.trusted_keys import TrustedKeys


def check_signatures(conf: cfg.ConfigOpts) -> Result:
    """Check the keys of signed images, and whether unsigned ones are refused."""
    directory = conf.repository.public_keys
    keys = TrustedKeys(directory)
    if keys.problems:
        path, problem = next(iter(keys.problems.items()))
        return failure(f"{path}: {problem}")
    if conf.repository.signing_key:
        try:
            own = public_key_of(read_private_key(conf.repository.signing_key))
        except exception.ConfigurationError as error:
            return failure_of(error)
        if keys.find(own.id) is None:
            return warning(
                f"the public key {own.id[:16]} of [repository] signing_key is not in {directory}: "
                "copy it there on every machine, or hosts refuse what this one signs"
            )
    if not conf.repository.require_signatures:
        return warning(
            "[repository] require_signatures is false: whoever can write to the origin can put "
            "another image in the place of one that is not signed; make keys ('acstor repository "
            "keygen'), sign ('acstor repository sign'), then set it"
        )
    if not len(keys):
        return failure(
            f"[repository] require_signatures is true and {directory} has no keys: every image is "
            "refused; copy the public key there"
        )
    return success(f"signed images only, by one of {len(keys)} keys in {directory}")
