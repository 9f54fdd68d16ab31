//! mount(2), umount2(2), the read-ahead of the mount, and the emergency exit.

pub(crate) mod mountinfo;

use std::ffi::CString;
use std::fs;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};

use crate::limits::READ_SIZE_MAX;
use crate::{FuseConfig, FuseError};

const DEVICE: &str = "/dev/fuse";
/// Longest wait for the answer of a leftover mount, after which it counts as dead.
const PROBE_WAIT: Duration = Duration::from_secs(2);
/// Pause between two tries to unmount a busy mount.
const BUSY_PAUSE: Duration = Duration::from_millis(20);
/// Longest wait for the kernel to end an aborted connection.
const ABORT_WAIT: Duration = Duration::from_secs(5);

/// Flags of the mount. Whoever takes the server over may answer with any inode: none of them is to
/// lead anybody who reads an image, root too, to other files of the host (NOSYMFOLLOW), nor to be run.
/// Without NOATIME the kernel asks for attributes again after every read.
const FLAGS: MountFlags = MountFlags::NODEV
    .union(MountFlags::NOSUID)
    .union(MountFlags::NOEXEC)
    .union(MountFlags::NOSYMFOLLOW)
    .union(MountFlags::NOATIME);

/// Way in which a mount ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Unmounted {
    /// There was none.
    NotMounted,
    /// Nobody used it any more.
    Clean,
    /// It was in use: the connection was aborted, every read through it fails with ENOTCONN.
    Aborted,
}

/// Mounts a new connection and returns its descriptor and the resolved mount point.
pub(crate) fn mount(config: &FuseConfig) -> Result<(OwnedFd, PathBuf), FuseError> {
    let mount_point = mountinfo::resolve_parent(&config.mount_point)?;
    let fs_type = format!("fuse.{}", config.fs_name);
    clear_leftover(&mount_point, &fs_type)?;
    let device = rustix::fs::open(DEVICE, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| FuseError::Device(error.into()))?;
    let failed =
        |error: Errno| FuseError::Mount { mount_point: mount_point.clone(), source: error.into() };
    let data = CString::new(mount_data(config, &device)).map_err(|_| failed(Errno::INVAL))?;
    rustix::mount::mount(&config.fs_name, &mount_point, &fs_type, FLAGS, Some(data.as_c_str()))
        .map_err(failed)?;
    Ok((device, mount_point))
}

fn mount_data(config: &FuseConfig, device: &impl AsFd) -> String {
    let mut data = format!(
        "fd={},rootmode=40555,user_id=0,group_id=0,default_permissions,max_read={READ_SIZE_MAX}",
        device.as_fd().as_raw_fd()
    );
    if config.allow_other {
        data.push_str(",allow_other");
    }
    if let Some(context) = &config.selinux_context {
        data.push_str(&format!(",context=\"{context}\""));
    }
    data
}

/// Takes away what a former process left: a mount whose connection has ended. A live connection
/// (a holder keeps its descriptor) is somebody's, and refused.
fn clear_leftover(mount_point: &Path, fs_type: &str) -> Result<(), FuseError> {
    match mountinfo::find(mount_point)? {
        Some(info) if info.fs_type == fs_type => {}
        _ => return Ok(()),
    }
    let live = || FuseError::MountedAlready { mount_point: mount_point.to_owned() };
    let (sender, receiver) = mpsc::channel();
    let path = mount_point.to_owned();
    // In a thread of its own, since statfs of a live connection waits for its server.
    thread::Builder::new()
        .name("acstor-fuse-probe".to_owned())
        .spawn(move || sender.send(rustix::fs::statfs(&path).err()))
        .map_err(FuseError::Thread)?;
    match receiver.recv_timeout(PROBE_WAIT) {
        Ok(Some(Errno::NOTCONN | Errno::CONNABORTED)) => detach(mount_point),
        _ => Err(live()),
    }
}

/// Sets the read-ahead of buffered reads, KiB. INIT cannot raise it above the default of 128. Needs
/// root.
///
/// # Errors
/// [`FuseError::Mount`] when nothing is mounted there, [`FuseError::Io`] when the kernel refuses.
pub fn set_read_ahead(mount_point: &Path, kib: u32) -> Result<(), FuseError> {
    let Some(info) = mountinfo::find(mount_point)? else {
        return Err(FuseError::Mount {
            mount_point: mount_point.to_owned(),
            source: Errno::NOENT.into(),
        });
    };
    let path = PathBuf::from(format!("/sys/class/bdi/{}/read_ahead_kb", info.device));
    fs::write(&path, kib.to_string()).map_err(|source| FuseError::Io { path, source })
}

/// Unmounts: at once when nobody uses the mount, else by aborting its connection after `grace`.
/// Never waits for a server; bounded by `grace` and a few seconds.
///
/// # Errors
/// [`FuseError::Unmount`] when the kernel refuses (not root), or does not come to an end.
pub fn unmount(mount_point: &Path, grace: Duration) -> Result<Unmounted, FuseError> {
    let mount_point = mountinfo::resolve_parent(mount_point)?;
    let path = mount_point.clone();
    let (sender, receiver) = mpsc::channel();
    // In a thread of its own: the last step of umount(2) frees inodes, which no deadline bounds.
    thread::Builder::new()
        .name("acstor-fuse-umount".to_owned())
        .spawn(move || sender.send(unmount_in_steps(&path, grace)))
        .map_err(FuseError::Thread)?;
    match receiver.recv_timeout(grace + ABORT_WAIT) {
        Ok(result) => result,
        Err(_) => {
            abort(&mount_point);
            receiver
                .recv_timeout(ABORT_WAIT)
                .unwrap_or(Err(FuseError::Unmount { mount_point, source: Errno::TIMEDOUT.into() }))
        }
    }
}

fn unmount_in_steps(mount_point: &Path, grace: Duration) -> Result<Unmounted, FuseError> {
    if !mountinfo::find(mount_point)?.is_some_and(|info| info.fs_type.starts_with("fuse.")) {
        return Ok(Unmounted::NotMounted);
    }
    let deadline = Instant::now() + grace;
    loop {
        match rustix::mount::unmount(mount_point, UnmountFlags::NOFOLLOW) {
            Ok(()) => return Ok(Unmounted::Clean),
            Err(Errno::INVAL) => return Ok(Unmounted::NotMounted),
            Err(Errno::BUSY) if Instant::now() < deadline => thread::sleep(BUSY_PAUSE),
            Err(Errno::BUSY) => break,
            Err(error) => {
                let mount_point = mount_point.to_owned();
                return Err(FuseError::Unmount { mount_point, source: error.into() });
            }
        }
    }
    abort(mount_point);
    detach(mount_point)?;
    Ok(Unmounted::Aborted)
}

/// Ends the connection: every request fails, the server's threads end.
fn abort(mount_point: &Path) {
    if let Ok(Some(info)) = mountinfo::find(mount_point)
        && let Some(connection) = info.connection()
        && fs::write(format!("/sys/fs/fuse/connections/{connection}/abort"), "1").is_ok()
    {
        return;
    }
    // fusectl is not mounted everywhere; a forced unmount aborts first, busy or not.
    let _ = rustix::mount::unmount(mount_point, UnmountFlags::FORCE | UnmountFlags::NOFOLLOW);
}

fn detach(mount_point: &Path) -> Result<(), FuseError> {
    match rustix::mount::unmount(mount_point, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW) {
        // INVAL: the forced unmount was enough.
        Ok(()) | Err(Errno::INVAL) => Ok(()),
        Err(error) => {
            Err(FuseError::Unmount { mount_point: mount_point.to_owned(), source: error.into() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::mount_data;
    use crate::FuseConfig;
    use std::os::fd::AsRawFd;

    #[test]
    fn options_follow_the_configuration() {
        let file = tempfile::tempfile().unwrap();
        let mut config = FuseConfig::new("/mnt");
        let plain = format!(
            "fd={},rootmode=40555,user_id=0,group_id=0,default_permissions,max_read=1048576",
            file.as_raw_fd()
        );
        assert_eq!(mount_data(&config, &file), format!("{plain},allow_other"));
        config.allow_other = false;
        config.selinux_context = Some("system_u:object_r:virt_content_t:s0".into());
        assert_eq!(
            mount_data(&config, &file),
            format!("{plain},context=\"system_u:object_r:virt_content_t:s0\"")
        );
    }
}
