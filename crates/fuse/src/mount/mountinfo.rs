//! Parser of `/proc/self/mountinfo` for one mount point.
//!
//! This is how the server learns about its own mount: stat on it would wait for the server itself.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use crate::FuseError;

const MOUNTINFO: &str = "/proc/self/mountinfo";

/// The topmost mount on a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MountInfo {
    /// Device number, `major:minor`.
    pub(crate) device: String,
    /// Type of the file system, with its subtype.
    pub(crate) fs_type: String,
}

impl MountInfo {
    /// Minor number, which names the FUSE connection (its major number is 0).
    pub(crate) fn connection(&self) -> Option<&str> {
        self.device.strip_prefix("0:")
    }
}

/// Finds the topmost mount on `mount_point` without touching it.
pub(crate) fn find(mount_point: &Path) -> Result<Option<MountInfo>, FuseError> {
    let text =
        fs::read(MOUNTINFO).map_err(|source| FuseError::Io { path: MOUNTINFO.into(), source })?;
    Ok(find_in(&text, mount_point))
}

fn find_in(text: &[u8], mount_point: &Path) -> Option<MountInfo> {
    let lines = text.split(|&byte| byte == b'\n');
    lines.filter_map(|line| parse(line, mount_point)).next_back()
}

/// Fields: id, parent, device, root, mount point, options, optional ones, "-", type, ...
fn parse(line: &[u8], mount_point: &Path) -> Option<MountInfo> {
    let mut fields = line.split(|&byte| byte == b' ');
    let device = fields.nth(2)?;
    let path = unescape(fields.nth(1)?);
    if path.as_os_str() != mount_point.as_os_str() {
        return None;
    }
    let fs_type = fields.skip_while(|&field| field != b"-").nth(1)?;
    Some(MountInfo {
        device: String::from_utf8(device.to_vec()).ok()?,
        fs_type: String::from_utf8(fs_type.to_vec()).ok()?,
    })
}

/// Turns the octal escapes of space, tab, newline and backslash back.
fn unescape(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        let digits = tail.get(..3).filter(|_| *first == b'\\');
        match digits.and_then(|d| u8::from_str_radix(std::str::from_utf8(d).ok()?, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[3..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    OsString::from_vec(bytes)
}

/// Splits the parent off and resolves it, so that the result is what mountinfo will show; the
/// last component is not touched.
pub(crate) fn resolve_parent(mount_point: &Path) -> Result<std::path::PathBuf, FuseError> {
    let mount_point: &Path = match mount_point.as_os_str().as_bytes() {
        [head @ .., b'/'] if !head.is_empty() => Path::new(std::ffi::OsStr::from_bytes(head)),
        _ => mount_point,
    };
    match (mount_point.parent(), mount_point.file_name()) {
        (Some(parent), Some(name)) => match fs::canonicalize(parent) {
            Ok(parent) => Ok(parent.join(name)),
            Err(source) => Err(FuseError::Mount { mount_point: mount_point.into(), source }),
        },
        _ => Err(FuseError::Config { option: "mount_point", allowed: "a directory other than /" }),
    }
}

#[cfg(test)]
mod tests {
    use super::{MountInfo, find_in, resolve_parent};
    use std::path::Path;

    const TEXT: &[u8] = b"\
22 1 253:0 / / rw,relatime shared:1 - ext4 /dev/vda rw\n\
40 22 0:50 / /mnt/a\\040b rw,nosuid,nodev shared:9 master:2 - fuse.acstor acstor rw\n\
41 22 0:51 / /mnt/c rw - tmpfs tmpfs rw\n\
42 41 0:52 / /mnt/c rw - fuse.acstor acstor rw\n";

    #[test]
    fn the_topmost_mount_is_found() {
        let info = find_in(TEXT, Path::new("/mnt/c")).unwrap();
        assert_eq!(info, MountInfo { device: "0:52".into(), fs_type: "fuse.acstor".into() });
        assert_eq!(info.connection(), Some("52"));
    }

    #[test]
    fn escaped_paths_are_found() {
        assert_eq!(find_in(TEXT, Path::new("/mnt/a b")).unwrap().device, "0:50");
        assert_eq!(find_in(TEXT, Path::new("/mnt/a")), None);
    }

    #[test]
    fn a_block_device_is_no_connection() {
        assert_eq!(find_in(TEXT, Path::new("/")).unwrap().connection(), None);
    }

    #[test]
    fn links_above_the_mount_point_are_resolved() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        std::fs::create_dir(root.join("real")).unwrap();
        std::os::unix::fs::symlink("real", root.join("link")).unwrap();
        assert_eq!(resolve_parent(&root.join("link/m/")).unwrap(), root.join("real/m"));
        assert!(resolve_parent(Path::new("/")).is_err());
    }
}
