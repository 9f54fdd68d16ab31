//! A server that was taken over answers with whatever it likes; who reads its mount, root too, must
//! get to no other file of the host. Needs root and `/dev/fuse`.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test fails by panicking"
)]

use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::thread;
use std::time::Duration;

use acstor_fuse::{FuseConfig, mount_connection, unmount};

const LOOKUP: u32 = 1;
const GETATTR: u32 = 3;
const READLINK: u32 = 5;
const INIT: u32 = 26;
const ROOT: u64 = 1;

/// `struct fuse_attr`.
fn attributes(inode: u64, mode: u32, size: u64) -> Vec<u8> {
    let mut bytes: Vec<u8> =
        [inode, size, 0, 0, 0, 0].iter().flat_map(|v| v.to_ne_bytes()).collect();
    let small = [0, 0, 0, mode, 1, 0, 0, 0, 4096, 0];
    bytes.extend(small.iter().flat_map(|v: &u32| v.to_ne_bytes()));
    bytes
}

/// Every name is a link to `target`.
fn answer(opcode: u32, inode: u64, target: &[u8]) -> Option<Vec<u8>> {
    let link = || attributes(2, libc::S_IFLNK | 0o777, target.len() as u64);
    let mut bytes: Vec<u8> = Vec::new();
    match opcode {
        INIT => {
            for value in [7_u32, 31, 0, 0, 0, 4096, 0, 4096] {
                bytes.extend(value.to_ne_bytes());
            }
            bytes.resize(64, 0);
        }
        LOOKUP => {
            bytes.extend([2_u64, 0, 1, 1, 0].iter().flat_map(|v| v.to_ne_bytes()));
            bytes.extend(link());
        }
        GETATTR => {
            bytes.extend([1_u64, 0].iter().flat_map(|v| v.to_ne_bytes()));
            bytes.extend(if inode == ROOT {
                attributes(ROOT, libc::S_IFDIR | 0o555, 0)
            } else {
                link()
            });
        }
        READLINK => bytes.extend(target),
        _ => return None,
    }
    Some(bytes)
}

/// "Links that a server makes up are not followed, not by root either: ELOOP."
#[test]
fn test_links_of_a_server_lead_nowhere() {
    let directory = tempfile::tempdir().unwrap();
    let mount_point = directory.path().join("images");
    fs::create_dir(&mount_point).unwrap();
    let secret = directory.path().join("secret");
    fs::write(&secret, "root's").unwrap();
    let mut device = fs::File::from(mount_connection(&FuseConfig::new(&mount_point)).unwrap());
    let target = secret.to_str().unwrap().as_bytes().to_vec();
    let server = thread::spawn(move || {
        let mut request = vec![0; 1 << 20];
        while let Ok(size) = device.read(&mut request) {
            let number = |at: usize| u32::from_ne_bytes(request[at..at + 4].try_into().unwrap());
            let inode = u64::from_ne_bytes(request[16..24].try_into().unwrap());
            assert!(size >= 40);
            let body = answer(number(4), inode, &target);
            let error = if body.is_some() { 0 } else { -libc::ENOSYS };
            let body = body.unwrap_or_default();
            let mut reply = u32::try_from(16 + body.len()).unwrap().to_ne_bytes().to_vec();
            reply.extend(error.to_ne_bytes());
            reply.extend(&request[8..16]);
            reply.extend(body);
            // FORGET wants no answer.
            let _ = device.write(&reply);
        }
    });
    let read = fs::read_to_string(mount_point.join("image.raw"));
    let linked = fs::read_link(mount_point.join("image.raw"));
    let _ = unmount(&mount_point, Duration::ZERO).unwrap();
    server.join().unwrap();
    assert_eq!(linked.unwrap(), secret, "the server answers");
    let error = read.map_err(|error| error.raw_os_error());
    assert_eq!(error, Err(Some(libc::ELOOP)), "{}", Path::new(&mount_point).display());
}
