//! Giving up reads whose reader was killed.
//!
//! A thread that waits for a direct read waits uninterruptibly, even when killed: the kernel tells
//! nobody, and libvirt could not get rid of a guest whose origin is gone until the deadline. So a
//! read that takes long looks after its reader now and then.

use std::fs;
use std::time::Duration;

/// Interval at which the reader of a waiting read is checked for having been killed.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// `PF_EXITING` of the flags in `/proc/<pid>/stat`.
const EXITING: u64 = 4;
const SIGKILL_BIT: u64 = 1 << (libc::SIGKILL - 1);
/// Fields of `/proc/<pid>/stat` counted from the state, which follows the name; see proc(5).
const FLAGS_FIELD: usize = 9 - 3;
const PENDING_FIELD: usize = 31 - 3;

/// Waits until the thread has been killed or is on its way out. Never returns for thread 0, or for
/// one that cannot be seen (it may have handed the read over and ended).
pub(crate) async fn killed(thread: u32) {
    if thread == 0 {
        return std::future::pending().await;
    }
    loop {
        tokio::time::sleep(LOOK_INTERVAL).await;
        let stat = fs::read_to_string(format!("/proc/{thread}/stat"));
        if stat.is_ok_and(|stat| is_dying(&stat)) {
            return;
        }
    }
}

fn is_dying(stat: &str) -> bool {
    // The name may contain anything, parentheses too.
    let Some((_, fields)) = stat.rsplit_once(") ") else { return false };
    let field = |number| fields.split(' ').nth(number).and_then(|text| text.parse::<u64>().ok());
    field(FLAGS_FIELD).is_some_and(|flags| flags & EXITING != 0)
        || field(PENDING_FIELD).is_some_and(|pending| pending & SIGKILL_BIT != 0)
}

#[cfg(test)]
mod tests {
    use super::is_dying;

    fn stat(flags: u64, pending: u64) -> String {
        let between = "0 ".repeat(31 - 9 - 1);
        format!("7 (a) b) D 1 7 7 0 -1 {flags} {between}{pending} 0 0 0\n")
    }

    #[test]
    fn a_killed_or_exiting_thread_is_dying() {
        assert!(!is_dying(&stat(0x40_0000, 0)));
        assert!(!is_dying(&stat(0x40_0000, 1 << 14)), "SIGTERM");
        assert!(is_dying(&stat(0x40_0000, 1 << 8)));
        assert!(is_dying(&stat(0x40_0004, 0)));
        assert!(!is_dying("nonsense"));
    }

    #[test]
    fn this_thread_lives() {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
        assert!(!is_dying(&stat));
        let flags = stat.rsplit_once(") ").unwrap().1.split(' ').nth(super::FLAGS_FIELD).unwrap();
        assert!(
            flags.parse::<u64>().unwrap() & 0x40_0000 != 0,
            "PF_RANDOMIZE is where it should be"
        );
    }
}
