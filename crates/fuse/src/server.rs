//! A connection that is not served yet: mounted here, or taken over from another process.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use tokio::sync::Semaphore;

use crate::device::Device;
use crate::dispatch::Dispatch;
use crate::session::heartbeats::Heartbeats;
use crate::session::session_state::{SessionState, StateCell};
use crate::stats::Counters;
use crate::{
    FileTable, FuseConfig, FuseError, FuseHooks, FuseSession, Negotiated, mount, mount::mountinfo,
    session::session_file, wire::notify,
};

/// Device number of `/dev/fuse`.
const FUSE_DEVICE: (u32, u32) = (10, 229);

/// A mounted connection. Give its descriptor to the holder, fill the table of files, then
/// [`FuseServer::serve`]. Dropping it instead leaves the mount to the holder.
#[derive(Debug)]
pub struct FuseServer {
    config: FuseConfig,
    mount_point: PathBuf,
    device: Arc<Device>,
    is_inherited: bool,
    negotiated: Option<Negotiated>,
}

impl FuseServer {
    /// Mounts a new connection and sets its read-ahead. Needs root.
    ///
    /// # Errors
    /// [`FuseError::Config`], [`FuseError::MountedAlready`], [`FuseError::Device`],
    /// [`FuseError::Mount`].
    pub fn mount(config: FuseConfig) -> Result<FuseServer, FuseError> {
        FuseServer::on_mounted(config.clone(), mount_connection(&config)?)
    }

    /// Serves a new connection that another process mounted: its INIT is still to be answered.
    /// Needs no privilege.
    ///
    /// # Errors
    /// [`FuseError::Config`], [`FuseError::TakeOver`] when the descriptor is not a live FUSE
    /// connection, [`FuseError::Io`] when what a former session left cannot be removed.
    pub fn on_mounted(config: FuseConfig, fd: OwnedFd) -> Result<FuseServer, FuseError> {
        config.validate()?;
        let mount_point = mountinfo::resolve_parent(&config.mount_point)?;
        check_descriptor(&fd)?;
        if let Some(path) = &config.session_file {
            session_file::remove(path)?;
        }
        let device = Arc::new(Device::new(fd));
        Ok(FuseServer { config, mount_point, device, is_inherited: false, negotiated: None })
    }

    /// Takes a connection over whose descriptor a holder kept. Nothing is mounted and INIT is not
    /// awaited (but answered, should the former process have died before it). The read-ahead stays
    /// as it is, see [`crate::set_read_ahead`].
    ///
    /// # Errors
    /// [`FuseError::TakeOver`] when the descriptor is not a live FUSE connection,
    /// [`FuseError::SessionTooNew`] and [`FuseError::SessionFile`] from the session file.
    pub fn take_over(config: FuseConfig, fd: OwnedFd) -> Result<FuseServer, FuseError> {
        config.validate()?;
        let mount_point = mountinfo::resolve_parent(&config.mount_point)?;
        check_descriptor(&fd)?;
        let negotiated = match &config.session_file {
            Some(path) => session_file::load(path)?,
            None => None,
        };
        if let Some(negotiated) = &negotiated {
            negotiated.check()?;
        }
        let device = Arc::new(Device::new(fd));
        Ok(FuseServer { config, mount_point, device, is_inherited: true, negotiated })
    }

    /// The descriptor, for the holder. Never clone it by `FUSE_DEV_IOC_CLONE`.
    pub fn device(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }

    /// Starts answering. All files that guests may have open are to be attached before.
    ///
    /// # Errors
    /// [`FuseError::Thread`].
    pub fn serve(
        self,
        files: Arc<FileTable>,
        runtime: tokio::runtime::Handle,
        hooks: FuseHooks,
    ) -> Result<FuseSession, FuseError> {
        files.connect(self.device.clone(), self.is_inherited);
        if self.is_inherited {
            self.ask_again();
        }
        // A session taken over was agreed on before; should its INIT be among the requests that
        // come again, it is answered like a first one.
        let state = if self.is_inherited { SessionState::Serving } else { SessionState::Starting };
        let dispatch = Arc::new(Dispatch {
            permits: Arc::new(Semaphore::new(self.config.max_in_flight)),
            attached_until: self
                .is_inherited
                .then(|| tokio::time::Instant::now() + self.config.answer_deadline),
            heartbeats: Heartbeats::new(self.config.threads),
            config: self.config,
            device: self.device,
            files,
            runtime,
            hooks,
            stats: Counters::default(),
            is_handed_over: AtomicBool::new(false),
            state: StateCell::new(state),
            negotiated: self.negotiated.into(),
        });
        FuseSession::start(dispatch, self.mount_point)
    }

    /// Requests that the former process read and did not answer come again.
    fn ask_again(&self) {
        if let Err(error) = notify::resend(&self.device) {
            tracing::error!(
                %error,
                "requests in flight could not be asked for again; their readers hang (Linux 6.9 \
                 or later is needed)"
            );
        }
    }
}

/// Mounts a new connection that nobody serves yet, sets its read-ahead, and returns its
/// descriptor: for [`FuseServer::on_mounted`], of this process or of one that it is sent to. Needs
/// root.
///
/// # Errors
/// [`FuseError::Config`], [`FuseError::MountedAlready`], [`FuseError::Device`],
/// [`FuseError::Mount`].
pub fn mount_connection(config: &FuseConfig) -> Result<OwnedFd, FuseError> {
    config.validate()?;
    let (fd, mount_point) = mount::mount(config)?;
    // A slow read-ahead is no reason to refuse a mount.
    if let Err(error) = mount::set_read_ahead(&mount_point, config.read_ahead_kb) {
        tracing::warn!(%error, "cannot set the read-ahead; sequential reads will be slower");
    }
    Ok(fd)
}

fn check_descriptor(fd: &OwnedFd) -> Result<(), FuseError> {
    let failed = |error: Errno| FuseError::TakeOver(error.into());
    let stat = rustix::fs::fstat(fd).map_err(failed)?;
    let number = (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
    if stat.st_mode & libc::S_IFMT != libc::S_IFCHR || number != FUSE_DEVICE {
        return Err(failed(Errno::NOTTY));
    }
    // The descriptor must not survive exec: a child could keep the connection alive.
    rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::CLOEXEC).map_err(failed)?;
    // Threads wait in read(2) itself.
    let flags = rustix::fs::fcntl_getfl(fd).map_err(failed)?;
    rustix::fs::fcntl_setfl(fd, flags - OFlags::NONBLOCK).map_err(failed)?;
    let mut polled = [PollFd::new(fd, PollFlags::IN)];
    poll(&mut polled, Some(&Timespec::default())).map_err(failed)?;
    if polled[0].revents().contains(PollFlags::ERR) {
        return Err(FuseError::TakeOver(std::io::Error::from_raw_os_error(fd_error(fd))));
    }
    Ok(())
}

/// A descriptor in an error state was never mounted or its connection has ended.
fn fd_error(fd: &OwnedFd) -> i32 {
    tracing::debug!(fd = fd.as_raw_fd(), "poll reports an error on the descriptor");
    libc::ENOTCONN
}
