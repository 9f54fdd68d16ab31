//! The FUSE front end: every registered image as a raw, read-only file.
//!
//! A low-level server on plain `/dev/fuse`: one descriptor, never cloned, read by several blocking
//! threads; hits are answered there by `writev` straight from the mapped chunk store, misses by a
//! task of the runtime. The connection outlives the process: a holder keeps the descriptor, the
//! next process takes it over and asks the kernel to send again what was in flight.
//!
//! This crate only unpacks, delegates to [`acstor_readpath::BlockView`], and replies; it decides
//! nothing about where bytes come from. What each call answers and why is in
//! `doc/source/reference/protocols/fuse-semantics.rst`; no process that serves a mount may ever
//! open a file of it (fork and exec would then deadlock in the kernel).

mod config;
mod device;
mod dispatch;
mod error;
mod file;
mod file_table;
mod hooks;
pub mod limits;
mod mount;
mod prepared;
mod read;
mod server;
mod session;
mod stats;
mod wire;

pub use config::FuseConfig;
pub use error::FuseError;
pub use file::FileStatus;
pub use file_table::{Detached, FileTable};
pub use hooks::FuseHooks;
pub use mount::{Unmounted, set_read_ahead, unmount};
pub use server::{FuseServer, mount_connection};
pub use session::FuseSession;
pub use session::session_file::SESSION_FILE_VERSION;
pub use session::session_state::SessionState;
pub use stats::FuseStats;
pub use wire::errno::errno_of;
pub use wire::inode::FileKey;
pub use wire::negotiation::Negotiated;
pub use wire::request::{Change, ForgetList, Operation, ParseError, Request, RequestHeader};
