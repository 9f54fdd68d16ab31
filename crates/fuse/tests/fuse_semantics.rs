//! The claims of `doc/source/reference/protocols/fuse-semantics.rst` on reading, names and refusals,
//! on real mounts; each test's comment quotes its claim. Needs root and `/dev/fuse`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;

use acstor_fuse::{FuseHooks, Unmounted};
use support::pattern::CHUNK;
use support::{Mounted, disk, errno, raw_name, read_checked, wait_until};

const SIZE: u64 = 4 << 20;

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

/// "The mount is read-write, since on a read-only one Nova's utime fails with EROFS and the instance
/// with it. It is nodev, nosuid, noexec and nosymfollow."
#[test]
fn test_mount_is_read_write_and_nothing_else() {
    let mounted = Mounted::new();
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let path = mounted.config.mount_point.to_str().unwrap();
    let line = text.lines().find(|line| line.contains(path)).unwrap();
    let options: Vec<&str> = line.split(' ').nth(5).unwrap().split(',').collect();
    for option in ["rw", "nodev", "nosuid", "noexec", "nosymfollow"] {
        assert!(options.contains(&option), "{line}");
    }
    assert!(line.contains(" - fuse.acstor acstor "), "{line}");
    assert!(line.contains("allow_other") && line.contains("default_permissions"), "{line}");
}

/// "Without a reader group every user may read; no user may write, root included."
#[test]
fn test_any_user_reads() {
    let mounted = Mounted::new();
    mounted.attach(1, 512);
    fs::set_permissions(mounted.directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let as_nobody = |program: &str, arguments: &[&str]| {
        Command::new(program).args(arguments).arg(mounted.path(1)).uid(65534).output().unwrap()
    };
    let output = as_nobody("cat", &[]);
    assert_eq!(output.stdout.len(), 512, "{output:?}");
    assert!(!as_nobody("test", &["-w"]).status.success());
}

/// "open for writing, truncation and every change of the directory give EROFS."
#[test]
fn test_modification_is_erofs() {
    let mounted = Mounted::new();
    mounted.attach(1, SIZE);
    let (path, root) = (mounted.path(1), mounted.config.mount_point.clone());
    for options in [OpenOptions::new().write(true), OpenOptions::new().read(true).write(true)] {
        assert_eq!(errno(options.open(&path)), libc::EROFS);
    }
    assert_eq!(errno(OpenOptions::new().append(true).open(&path)), libc::EROFS);
    let create = OpenOptions::new().write(true).create_new(true).open(root.join("new"));
    assert_eq!(errno(create), libc::EROFS);
    assert_eq!(errno(fs::remove_file(&path)), libc::EROFS);
    assert_eq!(errno(fs::create_dir(root.join("d"))), libc::EROFS);
    assert_eq!(errno(fs::rename(&path, root.join("other"))), libc::EROFS);
    assert_eq!(errno(fs::hard_link(&path, root.join("link"))), libc::EROFS);
    assert_eq!(errno(std::os::unix::fs::symlink("x", root.join("link"))), libc::EROFS);
    // SAFETY: the path is a live C string.
    let truncated = unsafe { libc::truncate(c_path(&path).as_ptr(), 0) };
    assert_eq!(
        (truncated, std::io::Error::last_os_error().raw_os_error()),
        (-1, Some(libc::EROFS))
    );
    assert_eq!(fs::metadata(&path).unwrap().len(), SIZE);
}

/// "O_DIRECT is served, and every such read reaches the data plane."
#[test]
fn test_direct_reads_reach_the_view() {
    let mounted = Mounted::new();
    let view = mounted.attach(1, SIZE + 512);
    let file = mounted.open_direct(1);
    for round in 1..=3 {
        read_checked(&file, 0, 4096).unwrap();
        assert_eq!(view.knobs.reads.load(Ordering::SeqCst), round);
    }
    read_checked(&file, SIZE - 4096, 4096 + 512).unwrap();
    let mut buffer = support::Aligned::new(4096);
    assert_eq!(file.read_at(buffer.get(), SIZE).unwrap(), 512, "cut at the end");
    assert_eq!(file.read_at(buffer.get(), SIZE + 4096).unwrap(), 0);
}

/// "A file opened with O_NOATIME, which needs root, is read for no guest: the open is no boot, and
/// nothing is learnt from its reads."
#[test]
fn test_reads_without_atime_are_of_no_guest() {
    let mounted = Mounted::new();
    let view = mounted.attach(1, SIZE);
    let counts = || {
        let knobs = &view.knobs;
        (knobs.boots.load(Ordering::SeqCst), knobs.unrecorded.load(Ordering::SeqCst))
    };
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(libc::O_NOATIME | libc::O_DIRECT);
    let file = file.open(mounted.path(1)).unwrap();
    read_checked(&file, 0, 4096).unwrap();
    let (boots, unrecorded) = counts();
    assert_eq!(boots, 0);
    assert!(unrecorded > 0);
    read_checked(&mounted.open_direct(1), 0, 4096).unwrap();
    assert_eq!(counts(), (1, unrecorded));
}

/// "Every read returns exactly the bytes of the disk: any offset, any length, holes included."
#[test]
fn test_reads_are_exact() {
    let mounted = Mounted::new();
    mounted.attach(1, SIZE + 7);
    let file = mounted.open(1);
    for (offset, len) in [
        (0, 1),
        (CHUNK - 1, 2),
        (5 * CHUNK - 3, 70_000),
        (123_457, 1_000_003),
        (SIZE, 7),
        (0, (SIZE + 7) as usize),
    ] {
        read_checked(&file, offset, len).unwrap();
    }
    assert_eq!(file.read_at(&mut [0; 100], SIZE).unwrap(), 7);
    assert_eq!(file.read_at(&mut [0; 100], SIZE + 7).unwrap(), 0);
}

/// "mmap works."
#[test]
fn test_mmap_reads() {
    let mounted = Mounted::new();
    mounted.attach(1, SIZE);
    let file = mounted.open(1);
    // SAFETY: a new private mapping of the whole file, unmapped below.
    let mapping = unsafe {
        let fd = file.as_raw_fd();
        let protection = libc::PROT_READ;
        libc::mmap(std::ptr::null_mut(), SIZE as usize, protection, libc::MAP_SHARED, fd, 0)
    };
    assert_ne!(mapping, libc::MAP_FAILED);
    // SAFETY: the mapping has SIZE bytes and the file never shrinks.
    let bytes = unsafe { std::slice::from_raw_parts(mapping.cast::<u8>(), SIZE as usize) };
    assert_eq!(support::pattern::first_wrong(support::SEED, 0, bytes), None);
    // SAFETY: bytes is not used after this.
    unsafe { libc::munmap(mapping, SIZE as usize) };
}

/// "SEEK_DATA and SEEK_HOLE find the holes of the manifest; at or after the end they give ENXIO."
#[test]
fn test_seek_finds_data_and_holes() {
    let mounted = Mounted::new();
    mounted.attach(1, SIZE);
    let file = mounted.open(1);
    let seek = |offset: u64, whence| {
        // SAFETY: plain system call on an open file.
        let result = unsafe { libc::lseek(file.as_raw_fd(), offset as i64, whence) };
        if result < 0 {
            Err(errno::<i64>(Err(std::io::Error::last_os_error())))
        } else {
            Ok(result as u64)
        }
    };
    assert_eq!(seek(0, libc::SEEK_DATA), Ok(0));
    assert_eq!(seek(0, libc::SEEK_HOLE), Ok(5 * CHUNK));
    assert_eq!(seek(5 * CHUNK + 9, libc::SEEK_HOLE), Ok(5 * CHUNK + 9));
    assert_eq!(seek(5 * CHUNK, libc::SEEK_DATA), Ok(6 * CHUNK));
    assert_eq!(seek(SIZE - 1, libc::SEEK_HOLE), Ok(SIZE), "the end counts as a hole");
    assert_eq!(seek(SIZE, libc::SEEK_DATA), Err(libc::ENXIO));
    assert_eq!(seek(SIZE, libc::SEEK_HOLE), Err(libc::ENXIO));
}

/// "A name that is attached appears within 0.1 s, also when it was looked for right before."
#[test]
fn test_attached_name_appears_soon() {
    let mounted = Mounted::new();
    assert_eq!(errno(fs::metadata(mounted.path(1))), libc::ENOENT);
    mounted.attach(1, SIZE);
    wait_until("the name appears", || mounted.path(1).exists());
}

/// "A listing shows each file once, also while files come and go."
#[test]
fn test_listing_shows_each_file_once() {
    let mounted = Mounted::new();
    for number in 0..200 {
        mounted.attach(number, 512);
    }
    let list = || -> Vec<String> {
        let entries = fs::read_dir(&mounted.config.mount_point).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    let mut names = list();
    names.sort();
    let mut expected: Vec<String> = (0..200).map(|number| raw_name(disk(number))).collect();
    expected.sort();
    assert_eq!(names, expected);
    let mut entries = fs::read_dir(&mounted.config.mount_point).unwrap();
    let first = entries.next().unwrap().unwrap().file_name().into_string().unwrap();
    for number in (0..200).filter(|number| raw_name(disk(*number)) != first) {
        let _ = mounted.table.detach(disk(number)).unwrap();
    }
    // What was buffered may still be seen; nothing twice.
    let mut rest: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
    let count = rest.len();
    rest.sort();
    rest.dedup();
    assert_eq!(rest.len(), count);
    assert_eq!(list(), [first]);
}

/// "ls -l shows the sizes (READDIRPLUS)."
#[test]
fn test_listing_with_attributes() {
    let mounted = Mounted::new();
    for number in 1..=50 {
        mounted.attach(number, 512 * u64::from(number));
    }
    let mut sizes: Vec<u64> = fs::read_dir(&mounted.config.mount_point)
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .collect();
    sizes.sort_unstable();
    assert_eq!(sizes, (1..=50).map(|number| 512 * number).collect::<Vec<u64>>());
}

/// "Locks are the host's own: they work among its processes and never reach the server."
#[test]
fn test_locks_are_local() {
    let mounted = Mounted::new();
    mounted.attach(1, SIZE);
    let (first, second) = (mounted.open(1), mounted.open(1));
    let before = mounted.session.stats().requests;
    let lock = |file: &File| {
        // SAFETY: the structure is plain and lives over the call.
        unsafe {
            let mut lock: libc::flock = std::mem::zeroed();
            lock.l_type = libc::F_RDLCK as i16;
            lock.l_start = 100;
            lock.l_len = 1;
            libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &lock)
        }
    };
    assert_eq!((lock(&first), lock(&second)), (0, 0), "QEMU's shared locks");
    // SAFETY: plain system calls on open files.
    unsafe {
        assert_eq!(libc::flock(first.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB), 0);
        assert_eq!(libc::flock(second.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB), -1);
    }
    assert_eq!(mounted.session.stats().requests, before);
}

/// "ioctl is not supported (ENOTTY)."
#[test]
fn test_ioctl_is_enotty() {
    let mounted = Mounted::new();
    mounted.attach(1, SIZE);
    let file = mounted.open(1);
    // SAFETY: the kernel checks the request before it looks at the argument.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), 0x8004_ac01, 0) };
    assert_eq!((result, std::io::Error::last_os_error().raw_os_error()), (-1, Some(libc::ENOTTY)));
}

/// "Closing a file sends nothing but RELEASE (NOFLUSH), so a process that has a file open may fork
/// and exec the next server."
#[test]
fn test_close_sends_no_flush() {
    let mounted = Mounted::new();
    mounted.attach(1, SIZE);
    drop(mounted.open(1));
    wait_until("RELEASE", || mounted.table.list()[0].opens == 0);
    assert_eq!(mounted.session.stats().opens, 1);
    assert_eq!(mounted.session.stats().unsupported, 0, "FLUSH is not among the supported");
}

/// "The read-ahead of the mount is as configured."
#[test]
fn test_read_ahead_is_set() {
    let mounted = Mounted::with(|config| config.read_ahead_kb = 2048, FuseHooks::default());
    mounted.attach(1, SIZE);
    let device = fs::metadata(mounted.path(1)).unwrap().dev();
    let (major, minor) = (libc::major(device), libc::minor(device));
    let path = format!("/sys/class/bdi/{major}:{minor}/read_ahead_kb");
    assert_eq!(fs::read_to_string(path).unwrap().trim(), "2048");
}

/// "A detached image is gone for new users at once and goes on for those who have it open."
#[test]
fn test_detached_file_serves_who_has_it_open() {
    let mounted = Mounted::new();
    mounted.attach(1, SIZE);
    let (direct, buffered) = (mounted.open_direct(1), mounted.open(1));
    let detached = mounted.table.detach(disk(1)).unwrap();
    assert_eq!(detached, acstor_fuse::Detached::StillOpen);
    assert_eq!(errno(File::open(mounted.path(1))), libc::ENOENT);
    read_checked(&direct, 1 << 20, 1 << 20).unwrap();
    read_checked(&buffered, 2 << 20, 1 << 20).unwrap();
    drop((direct, buffered));
    wait_until("the view is dropped", || mounted.table.list().is_empty());
}

/// "A detached image that is not open is dropped at once."
#[test]
fn test_detached_file_that_is_closed_is_dropped() {
    let mounted = Mounted::new();
    mounted.attach(1, SIZE);
    drop(mounted.open(1));
    wait_until("it is closed", || mounted.table.list()[0].opens == 0);
    assert_eq!(mounted.table.detach(disk(1)).unwrap(), acstor_fuse::Detached::Gone);
    assert_eq!(errno(File::open(mounted.path(1))), libc::ENOENT);
    mounted.attach(1, SIZE);
    wait_until("it is back", || mounted.path(1).exists());
    read_checked(&mounted.open_direct(1), 0, 4096).unwrap();
}

/// "Unmounting an unused mount is clean and ends the session."
#[test]
fn test_unmount_is_clean() {
    let mounted = Mounted::new();
    mounted.attach(1, SIZE);
    read_checked(&mounted.open(1), 0, 4096).unwrap();
    assert_eq!(mounted.session.unmount(Duration::from_secs(5)).unwrap(), Unmounted::Clean);
    assert_eq!(mounted.session.state(), acstor_fuse::SessionState::Unmounted);
    assert!(fs::read_dir(&mounted.config.mount_point).unwrap().next().is_none());
}
