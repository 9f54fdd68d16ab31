"""Writing and believing records as ``[repository]`` of the configuration says."""

from oslo_config import cfg

from acstor.repository.images.record_writer import RecordWriter, SignedRecords, UnsignedRecords
from acstor.repository.images.signed_record import RecordVerifier
from acstor.repository.repository import Repository
from acstor.repository.signing.key_files import read_private_key
from acstor.repository.signing.trusted_keys import TrustedKeys


def record_writer(conf: cfg.ConfigOpts) -> RecordWriter:
    """Return what writes records on this machine.

    :raises ConfigurationError: when its key cannot be used.
    """
    signing = signed_records(conf)
    return UnsignedRecords() if signing is None else signing


def signed_records(conf: cfg.ConfigOpts) -> SignedRecords | None:
    """Return what signs records on this machine, None where it has no key.

    :raises ConfigurationError: when its key cannot be used.
    """
    path = conf.repository.signing_key
    if not path:
        return None
    return SignedRecords(read_private_key(path), TrustedKeys(conf.repository.public_keys))


def record_verifier(conf: cfg.ConfigOpts, repository: Repository) -> RecordVerifier:
    """Return what believes records on this machine."""
    return RecordVerifier(
        repository.format.id,
        TrustedKeys(conf.repository.public_keys),
        require_signatures=conf.repository.require_signatures,
    )
