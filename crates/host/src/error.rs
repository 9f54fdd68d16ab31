//! Errors of the data plane in what its host process asked.

use std::path::PathBuf;

use acstor_fuse::FuseError;
use acstor_members::MembersError;
use acstor_nbd::NbdError;
use acstor_overlay::OverlayError;
use acstor_peer::PeerError;
use acstor_readpath::{LocalError, ManifestFault, ReadPathError};
use acstor_ring::RingError;
use acstor_store::StoreError;
use acstor_types::{DiskId, ErrorKind};

/// Error of the data plane in a request of its host process.
#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// A setting has a value that this build does not know.
    #[error("{name} = {value:?} is not possible: {allowed}")]
    Setting {
        /// Name of the setting.
        name: &'static str,
        /// Value that was given.
        value: String,
        /// Values that are possible.
        allowed: &'static str,
    },
    /// A call that the present state does not allow.
    #[error("the data plane is {0}; make a new one")]
    State(&'static str),
    /// A file could not be read.
    #[error("cannot read {}: {source}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Failure that was the cause.
        source: std::io::Error,
    },
    /// A file has more bytes than anything of its kind.
    #[error("{} has more than {max} bytes", path.display())]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Most bytes.
        max: u64,
    },
    /// An argument has a value that this build does not know.
    #[error("{name} = {value:?} is not possible: {allowed}")]
    Argument {
        /// Name of the argument.
        name: &'static str,
        /// Value that was given.
        value: String,
        /// Values that are possible.
        allowed: &'static str,
    },
    /// The listening socket could not be made.
    #[error("cannot listen on {address}: {source}; is the port taken, is the address this host's?")]
    Listen {
        /// The address, `ip:port`.
        address: String,
        /// Failure that was the cause.
        source: std::io::Error,
    },
    /// A passed descriptor is no longer connected.
    #[error("{0}")]
    Stale(#[source] FuseError),
    /// No image of that id is attached.
    #[error("image {0} is not attached")]
    NotAttached(DiskId),
    /// A manifest file that cannot be read.
    #[error("{}: {fault}", path.display())]
    ManifestFault {
        /// The file.
        path: PathBuf,
        /// Fault of the manifest.
        fault: ManifestFault,
    },
    /// A file that is not the manifest below a volume: the origin has that.
    #[error("{}: {fault}", path.display())]
    Base {
        /// The file.
        path: PathBuf,
        /// Fault of the manifest.
        fault: ManifestFault,
    },
    /// No volume of that id is open.
    #[error("volume {0} is not open")]
    VolumeNotOpen(DiskId),
    /// A volume is opened twice.
    #[error("volume {0} is open already")]
    VolumeOpen(DiskId),
    /// Another host owns a volume that is known here.
    #[error("volume {0} is not owned by this host")]
    VolumeNotOwned(DiskId),
    /// A volume that is in use shall not be served any more.
    #[error("volume {volume} is in use: {clients} NBD clients are connected")]
    VolumeInUse {
        /// The volume.
        volume: DiskId,
        /// Clients that are connected.
        clients: usize,
    },
    /// A volume's overlay.
    #[error(transparent)]
    Overlay(#[from] OverlayError),
    /// The NBD server.
    #[error(transparent)]
    Nbd(#[from] NbdError),
    /// The members of the origin.
    #[error(transparent)]
    Members(#[from] MembersError),
    /// The chunk store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Chunks that this host keeps.
    #[error(transparent)]
    Local(#[from] LocalError),
    /// The ring.
    #[error(transparent)]
    Ring(#[from] RingError),
    /// The peer protocol.
    #[error(transparent)]
    Peer(#[from] PeerError),
    /// The read path.
    #[error(transparent)]
    ReadPath(#[from] ReadPathError),
    /// The FUSE server.
    #[error(transparent)]
    Fuse(#[from] FuseError),
    /// The system refused threads or descriptors.
    #[error("cannot start: {0}")]
    System(#[from] std::io::Error),
    /// A fault of this program.
    #[error("internal error: {0}")]
    Internal(&'static str),
}

impl HostError {
    /// Returns the kind, which says what a caller can do about it.
    pub fn kind(&self) -> ErrorKind {
        match self {
            HostError::Setting { .. }
            | HostError::State(_)
            | HostError::TooLong { .. }
            | HostError::VolumeOpen(_)
            | HostError::VolumeInUse { .. }
            | HostError::Argument { .. } => ErrorKind::Invalid,
            HostError::File { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
                ErrorKind::NotFound
            }
            HostError::File { .. } | HostError::Listen { .. } | HostError::System(_) => {
                ErrorKind::Unavailable
            }
            HostError::Stale(_) => ErrorKind::Unavailable,
            HostError::NotAttached(_) | HostError::VolumeNotOpen(_) => ErrorKind::NotFound,
            HostError::VolumeNotOwned(_) => ErrorKind::Fenced,
            HostError::Overlay(error) => error.kind(),
            HostError::Nbd(error) => error.kind(),
            // Whatever the file is, the manifest of that name was read here before.
            HostError::Base { fault, .. } if fault.is_final() => ErrorKind::Corrupt,
            HostError::Base { fault, .. } => fault.kind,
            HostError::ManifestFault { fault, .. } => match fault.kind {
                ErrorKind::Corrupt => ErrorKind::Invalid,
                kind => kind,
            },
            HostError::Members(error) => error.kind(),
            HostError::Store(error) => error.kind(),
            HostError::Local(error) => error.kind,
            HostError::Ring(error) => error.kind(),
            HostError::Peer(error) => error.kind(),
            HostError::ReadPath(error) => error.kind(),
            HostError::Fuse(error) => error.kind(),
            HostError::Internal(_) => ErrorKind::Internal,
        }
    }
}
