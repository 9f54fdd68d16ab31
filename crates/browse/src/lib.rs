//! Looking into a disk that nobody mounts: its partitions, their file systems, and files of these.
//!
//! A disk that a guest wrote may have been made to harm who reads it. So nothing here is read by a kernel: a
//! process of its own confines itself ([`confine`]), then serves requests on one socket ([`serve`]) and asks
//! for the bytes of the disk on the same. What a lie of the disk can do is end that process.
//!
//! Source: issue of versions, "read-only browse in a sandbox"; `guestfs-security(1)` on why the host's kernel
//! mounts nothing. Differs from guestfs: no virtual machine, hence ext2, ext3 and ext4 only; others are named.
#![forbid(unsafe_code)]

mod archive;
mod buffered;
mod disk;
mod error;
mod extfs;
mod gpt;
mod mbr;
mod names;
mod partitions;
mod sandbox;
mod serve;
mod signatures;
mod tree;
mod wire;

pub use archive::{ArchiveLimits, write_archive};
pub use buffered::Buffered;
pub use disk::{Disk, Part};
pub use error::BrowseError;
pub use extfs::ExtTree;
pub use names::{escape, unescape};
pub use partitions::{Partition, partitions};
pub use sandbox::{SandboxLimits, confine};
pub use serve::{Answered, serve};
pub use signatures::{FileSystem, file_system};
pub use tree::{Entry, EntryKind, FileTree};
pub use wire::{PROTOCOL_VERSION, RemoteDisk};
