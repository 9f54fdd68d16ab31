//! A real file system on a device that fails: ext4 on a loop device whose backing file, on a small
//! tmpfs, finds no room for what was never written before. It heals when there is room again.
//!
//! A loop device of Linux 6.15 and later counts a request as written whose backing file took a part
//! of it: 32 pages written and synced without an error, and ten of them there. Whatever lies on such a
//! device is lost without a word (with blocks of 1 KiB, which share pages, whole inodes of ext4 are,
//! after an unmount without an error). So blocks and requests are of one page here, which is written or
//! is not.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::fs::{FallocateFlags, fallocate, fstatvfs};

const BACKING_BYTES: u64 = 64 << 20;
const ROOM: &str = "size=40m,huge=never";
const PAGE_KIB: &str = "4";
/// `EXT4_IOC_SHUTDOWN`, with what neither the disk nor the journal has by now lost.
const SHUTDOWN: libc::c_ulong = 0x8004_587D;
const NO_LOG_FLUSH: u32 = 2;

/// Made, mounted, and taken away by the test that drops it.
pub(crate) struct FailingDevice {
    folder: tempfile::TempDir,
    device: Option<LoopDevice>,
}

struct LoopDevice {
    path: String,
    /// File in which the size of its requests is set, and the size before.
    request_size: (PathBuf, String),
}

impl FailingDevice {
    /// Makes a device that works so far.
    ///
    /// # Errors
    /// Why this host lets nobody do that.
    pub(crate) fn new(errors: &str) -> Result<FailingDevice, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let mut made = FailingDevice { folder, device: None };
        let (backing, mounted) = (made.backing(), made.mounted());
        let text = |error: io::Error| error.to_string();
        fs::create_dir_all(made.room()).map_err(text)?;
        fs::create_dir_all(&mounted).map_err(text)?;
        run("mount", &["-t", "tmpfs", "-o", ROOM, "none", &name(&made.room())])?;
        let file = File::create(&backing).map_err(text)?;
        file.set_len(BACKING_BYTES).map_err(text)?;
        run("mkfs.ext4", &["-q", "-F", "-b", "4096", "-e", errors, &name(&backing)])?;
        made.device = Some(LoopDevice::new(&backing)?);
        made.mount()?;
        Ok(made)
    }

    fn room(&self) -> PathBuf {
        self.folder.path().join("room")
    }

    fn backing(&self) -> PathBuf {
        self.room().join("backing")
    }

    fn balloon(&self) -> PathBuf {
        self.room().join("balloon")
    }

    /// Returns the mount point of the file system.
    pub(crate) fn mounted(&self) -> PathBuf {
        self.folder.path().join("mounted")
    }

    /// Lets the device fail wherever it was never written but for `pages` pages.
    pub(crate) fn fail(&self, pages: u64) {
        let file = File::create(self.balloon()).unwrap();
        let space = fstatvfs(&file).unwrap();
        let bytes = space.f_bavail.saturating_sub(pages) * space.f_frsize;
        if bytes > 0 {
            fallocate(&file, FallocateFlags::empty(), 0, bytes).unwrap();
        }
    }

    /// Lets the device work again.
    pub(crate) fn heal(&self) {
        match fs::remove_file(self.balloon()) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => panic!("{error}"),
            Ok(()) | Err(_) => {}
        }
    }

    /// Loses whatever was not synced: nothing reaches the device from here on.
    pub(crate) fn lose_power(&self) {
        let folder = File::open(self.mounted()).unwrap();
        // SAFETY: the descriptor is open, and the argument is a number that outlives the call.
        let code = unsafe { libc::ioctl(folder.as_raw_fd(), SHUTDOWN, &NO_LOG_FLUSH) };
        assert_eq!(code, 0, "{}", io::Error::last_os_error());
    }

    pub(crate) fn mount(&self) -> Result<(), String> {
        let device = self.device.as_ref().ok_or("there is no device")?;
        run("mount", &["-t", "ext4", &device.path, &name(&self.mounted())])
    }

    /// Takes the file system away, with all that memory has of it.
    pub(crate) fn unmount(&self) -> Result<(), String> {
        run("umount", &[&name(&self.mounted())])
    }
}

impl Drop for FailingDevice {
    fn drop(&mut self) {
        // Each may not have been made.
        if let Err(error) = self.unmount() {
            eprintln!("{}: {error}", self.mounted().display());
        }
        drop(self.device.take());
        drop(run("umount", &[&name(&self.room())]));
    }
}

impl LoopDevice {
    fn new(backing: &Path) -> Result<LoopDevice, String> {
        let made = output("losetup", &["--show", "-f", &name(backing)])?;
        let path = made.trim().to_owned();
        let device = path.strip_prefix("/dev/").ok_or("a device without a name")?;
        let setting = PathBuf::from(format!("/sys/block/{device}/queue/max_sectors_kb"));
        let before = fs::read_to_string(&setting).map_err(|error| error.to_string())?;
        let made = LoopDevice { path, request_size: (setting, before) };
        let set = fs::write(&made.request_size.0, PAGE_KIB);
        set.map_err(|error| format!("cannot set the size of its requests: {error}"))?;
        Ok(made)
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        // The setting outlives the backing file.
        drop(fs::write(&self.request_size.0, self.request_size.1.trim()));
        drop(run("losetup", &["-d", &self.path]));
    }
}

fn name(path: &Path) -> String {
    path.display().to_string()
}

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    output(program, arguments).map(drop)
}

fn output(program: &str, arguments: &[&str]) -> Result<String, String> {
    let mut command = Command::new("timeout");
    let done = command.arg("60").arg(program).args(arguments).output();
    let done = done.map_err(|error| format!("cannot run {program}: {error}"))?;
    if !done.status.success() {
        return Err(format!("{program}: {}", String::from_utf8_lossy(&done.stderr).trim()));
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}
