//! The one table from kinds of error to the errno that a reader sees.

use acstor_types::ErrorKind;

/// Returns the errno of a read that failed with this kind.
///
/// A guest's disk knows one error: EIO. Numbers that mean something else to a block layer are
/// avoided on purpose: QEMU stops the guest on ENOSPC, and libaio users do not expect EAGAIN.
pub const fn errno_of(kind: ErrorKind) -> i32 {
    match kind {
        ErrorKind::Invalid => libc::EINVAL,
        ErrorKind::Fenced => libc::ESTALE,
        ErrorKind::Unsupported => libc::EOPNOTSUPP,
        ErrorKind::NotFound
        | ErrorKind::Unavailable
        | ErrorKind::Overloaded
        | ErrorKind::Corrupt
        | ErrorKind::Exhausted
        | ErrorKind::Internal => libc::EIO,
    }
}

#[cfg(test)]
mod tests {
    use super::errno_of;
    use acstor_types::ErrorKind;

    #[test]
    fn every_kind_has_an_errno_the_kernel_takes() {
        for kind in ErrorKind::ALL {
            let errno = errno_of(kind);
            assert!(errno > 0 && errno < 512, "{}", kind.as_str());
            assert_ne!(errno, libc::ENOSYS, "ENOSYS turns an operation off for ever");
            assert_ne!(errno, libc::ENOSPC);
            assert_ne!(errno, libc::EAGAIN);
        }
        assert_eq!(errno_of(ErrorKind::Unavailable), libc::EIO);
    }
}
