//! The kernel's requests and the replies to them.

pub(crate) mod abi;
pub(crate) mod errno;
pub(crate) mod inode;
pub(crate) mod negotiation;
pub(crate) mod notify;
pub(crate) mod reply;
pub(crate) mod request;
