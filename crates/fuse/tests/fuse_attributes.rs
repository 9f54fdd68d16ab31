//! The claims of `doc/source/reference/protocols/fuse-semantics.rst` on attributes, on real mounts;
//! each test's comment quotes its claim. Needs root and `/dev/fuse`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

mod support;

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use acstor_fuse::FuseHooks;
use support::pattern::CHUNK;
use support::{Mounted, disk, errno, raw_name, read_checked, wait_until};

const SIZE: u64 = 4 << 20;

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).unwrap()
}

/// "An image is a regular file `<image id>.raw`, mode 0444, owned by root, of the disk's size."
#[test]
fn test_image_is_a_read_only_regular_file() {
    let mounted = Mounted::new();
    mounted.attach(1, SIZE);
    let metadata = fs::metadata(mounted.path(1)).unwrap();
    assert_eq!(metadata.mode(), libc::S_IFREG | 0o444);
    assert_eq!((metadata.uid(), metadata.gid(), metadata.nlink()), (0, 0, 1));
    assert_eq!(metadata.len(), SIZE);
    let root = fs::metadata(&mounted.config.mount_point).unwrap();
    assert_eq!(root.mode(), libc::S_IFDIR | 0o555);
}

/// Runs a program as a user who is in no group but `groups` (setpriv(1)).
fn runs_as_nobody(groups: &str, program: &str, path: &Path) -> bool {
    let user = ["--reuid=65534", "--regid=65534", groups, program];
    Command::new("setpriv").args(user).arg(path).output().unwrap().status.success()
}

/// "With a reader group files are 0440 and the directory 0550, of that group: its members read, and
/// nobody else but root opens, lists or stats an image."
#[test]
fn test_reader_group_keeps_others_out() {
    let mounted = Mounted::with(|config| config.reader_group = Some(4242), FuseHooks::default());
    mounted.attach(1, 512);
    fs::set_permissions(mounted.directory.path(), PermissionsExt::from_mode(0o755)).unwrap();
    let (file, root) = (mounted.path(1), mounted.config.mount_point.clone());
    // The stranger first: what a member has looked up must not let him in either.
    for _ in 0..2 {
        for (program, path) in [("cat", &file), ("stat", &file), ("ls", &root)] {
            assert!(!runs_as_nobody("--clear-groups", program, path), "{program}");
            assert!(!runs_as_nobody("--groups=4243", program, path), "{program}");
            assert!(runs_as_nobody("--groups=4242", program, path), "{program}");
        }
    }
    let metadata = fs::metadata(&file).unwrap();
    assert_eq!(metadata.mode(), libc::S_IFREG | 0o440);
    assert_eq!((metadata.uid(), metadata.gid()), (0, 4242));
    let directory = fs::metadata(&root).unwrap();
    assert_eq!(directory.mode(), libc::S_IFDIR | 0o550);
    assert_eq!((directory.uid(), directory.gid()), (0, 4242));
    // Names and attributes of a listing (READDIRPLUS) are the same.
    let listed: Vec<_> = fs::read_dir(&root).unwrap().map(|entry| entry.unwrap()).collect();
    assert_eq!(listed[0].metadata().unwrap().mode(), libc::S_IFREG | 0o440);
    assert_eq!(fs::read(&file).unwrap().len(), 512, "root");
}

/// "chown and chmod give EPERM: libvirt's relabelling goes on after it, and stops on ENOSYS."
#[test]
fn test_chown_is_eperm() {
    let mounted = Mounted::new();
    mounted.attach(1, SIZE);
    let path = mounted.path(1);
    for (user, group) in [(Some(64055), Some(64055)), (Some(0), None), (None, Some(1))] {
        assert_eq!(errno(std::os::unix::fs::chown(&path, user, group)), libc::EPERM);
    }
    assert_eq!(errno(fs::set_permissions(&path, PermissionsExt::from_mode(0o600))), libc::EPERM);
}

/// "utimens succeeds and is a hint to prefetch the image; the times do not take the value."
#[test]
fn test_utimens_succeeds_as_prefetch_hint() {
    let hints = Arc::new(AtomicU64::new(0));
    let seen = hints.clone();
    let hooks = FuseHooks::default().on_prefetch_hint(move |id| {
        assert_eq!(id, disk(1));
        seen.fetch_add(1, Ordering::SeqCst);
    });
    let mounted = Mounted::with(|_| {}, hooks);
    mounted.attach(1, SIZE);
    // SAFETY: a null times pointer means now.
    let result = unsafe { libc::utimes(c_path(&mounted.path(1)).as_ptr(), std::ptr::null()) };
    assert_eq!(result, 0);
    // The hook runs once the caller has its answer.
    wait_until("the hint", || hints.load(Ordering::SeqCst) == 1);
    let file = mounted.open(1);
    file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    wait_until("the second hint", || hints.load(Ordering::SeqCst) == 2);
    let age = fs::metadata(mounted.path(1)).unwrap().modified().unwrap().elapsed().unwrap();
    assert!(age < Duration::from_secs(60), "{age:?}");
}

/// "st_ctime never changes, so programs that look out for files written while they read (GNU tar)
/// see none."
#[test]
fn test_ctime_never_changes() {
    let mounted = Mounted::new();
    mounted.attach(1, SIZE);
    let ctime = || {
        let metadata = fs::metadata(mounted.path(1)).unwrap();
        (metadata.ctime(), metadata.ctime_nsec())
    };
    let before = ctime();
    mounted.open(1).set_modified(SystemTime::now()).unwrap();
    assert_eq!(ctime(), before);
}

/// "st_mtime is at most 60 s old whenever it is read, so Nova's image cache manager never removes
/// the link to an image as old and unused."
#[test]
fn test_mtime_is_fresh() {
    let mounted = Mounted::new();
    mounted.attach(1, SIZE);
    let before = SystemTime::now();
    let modified = fs::metadata(mounted.path(1)).unwrap().modified().unwrap();
    assert!(modified + Duration::from_millis(50) >= before);
    assert!(modified <= SystemTime::now() + Duration::from_millis(50));
}

/// "Names and attributes are kept by the kernel for 60 s: a stat does not reach the server."
#[test]
fn test_attributes_are_cached() {
    let mounted = Mounted::new();
    mounted.attach(1, SIZE);
    fs::metadata(mounted.path(1)).unwrap();
    let before = mounted.session.stats();
    for _ in 0..100 {
        fs::metadata(mounted.path(1)).unwrap();
    }
    assert_eq!(mounted.session.stats().requests, before.requests);
}

/// "Pages stay in the page cache over close and open, and over a changed mtime."
#[test]
fn test_pages_stay_cached_though_mtime_changes() {
    let mounted = Mounted::new();
    let view = mounted.attach(1, SIZE);
    let read_all = || {
        let file = mounted.open(1);
        for offset in (0..SIZE).step_by(1 << 20) {
            read_checked(&file, offset, 1 << 20).unwrap();
        }
    };
    read_all();
    let reads = view.knobs.reads.load(Ordering::SeqCst);
    assert!(reads > 0);
    let first = fs::metadata(mounted.path(1)).unwrap().modified().unwrap();
    mounted.open(1).set_modified(SystemTime::now()).unwrap();
    let second = fs::metadata(mounted.path(1)).unwrap().modified().unwrap();
    assert!(second > first, "the attributes that came back have a newer mtime");
    read_all();
    assert_eq!(view.knobs.reads.load(Ordering::SeqCst), reads, "no read reached the view again");
}

/// "st_blocks counts the bytes cached on this host, in units of 512, but is never 0: GNU tar takes
/// a file without blocks for one hole."
#[test]
fn test_blocks_are_the_cached_bytes() {
    let mounted = Mounted::new();
    mounted.attach(1, SIZE).knobs.cached.store(3 * CHUNK, Ordering::SeqCst);
    assert_eq!(fs::metadata(mounted.path(1)).unwrap().blocks(), 3 * CHUNK / 512);
    mounted.attach(2, SIZE);
    assert_eq!(fs::metadata(mounted.path(2)).unwrap().blocks(), 1);
    let tar = Command::new("tar")
        .args(["-C", mounted.config.mount_point.to_str().unwrap(), "-Scf", "-"])
        .arg(raw_name(disk(2)))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&tar.stderr);
    assert!(tar.status.success(), "{said}");
    assert!(tar.stdout.len() as u64 > SIZE / 2, "the content is in the archive");
}

/// "statfs counts the images and their size, and has no free space."
#[test]
fn test_statfs() {
    let mounted = Mounted::new();
    mounted.attach(1, SIZE);
    mounted.attach(2, SIZE);
    let path = c_path(&mounted.config.mount_point);
    // SAFETY: statfs fills a plain structure.
    let stat = unsafe {
        let mut stat: libc::statfs = std::mem::zeroed();
        assert_eq!(libc::statfs(path.as_ptr(), &mut stat), 0);
        stat
    };
    assert_eq!((stat.f_blocks * stat.f_bsize as u64, stat.f_bavail), (2 * SIZE, 0));
    assert_eq!((stat.f_files, stat.f_namelen), (2, 255));
}

/// "Extended attributes are not supported; the kernel asks once."
#[test]
fn test_extended_attributes_are_unsupported() {
    let mounted = Mounted::new();
    mounted.attach(1, SIZE);
    let path = c_path(&mounted.path(1));
    let get = || {
        // SAFETY: both strings live; the size of 0 asks for the length only.
        let result =
            unsafe { libc::getxattr(path.as_ptr(), c"user.x".as_ptr(), std::ptr::null_mut(), 0) };
        (result, std::io::Error::last_os_error().raw_os_error())
    };
    assert_eq!(get(), (-1, Some(libc::EOPNOTSUPP)));
    let before = mounted.session.stats().requests;
    assert_eq!(get(), (-1, Some(libc::EOPNOTSUPP)));
    assert_eq!(mounted.session.stats().requests, before);
}
