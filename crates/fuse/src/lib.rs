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

mod abi;
mod config;
mod device;
mod dispatch;
mod errno;
mod error;
mod file;
mod file_table;
mod heartbeats;
mod hooks;
mod inode;
pub mod limits;
mod mount;
mod mountinfo;
mod negotiation;
mod notify;
mod prepared;
mod read;
mod reader;
mod reply;
mod request;
mod server;
mod session;
mod session_file;
mod session_state;
mod stats;
mod stop_signal;

pub use config::FuseConfig;
pub use errno::errno_of;
pub use error::FuseError;
pub use file::FileStatus;
pub use file_table::{Detached, FileTable};
pub use hooks::FuseHooks;
pub use inode::FileKey;
pub use mount::{Unmounted, set_read_ahead, unmount};
pub use negotiation::Negotiated;
pub use request::{Change, ForgetList, Operation, ParseError, Request, RequestHeader};
pub use server::{FuseServer, mount_connection};
pub use session::FuseSession;
pub use session_file::SESSION_FILE_VERSION;
pub use session_state::SessionState;
pub use stats::FuseStats;
