//! Requests as they come from the kernel's FUSE device.

use acstor_fuse::{Operation, Request};

/// Uses one input; see the module.
///
/// # Panics
///
/// When a promise of the module is broken.
pub fn run(message: &[u8]) {
    match Request::parse(message) {
        Ok(request) => {
            if let Operation::BatchForget(list) = &request.operation {
                assert!(list.iter().count() <= message.len());
            }
            let _ = format!("{request:?}");
        }
        Err((_, error)) => {
            let _ = error.to_string();
        }
    }
    // The length field is what random bytes hardly ever have right.
    if let Ok(len) = u32::try_from(message.len())
        && message.len() >= 4
    {
        let mut repaired = message.to_vec();
        repaired[..4].copy_from_slice(&len.to_ne_bytes());
        if let Ok(request) = Request::parse(&repaired) {
            let _ = format!("{request:?}");
        }
    }
}
