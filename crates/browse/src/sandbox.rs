//! Confinement of the process, before it reads a disk that somebody else wrote.

use std::collections::BTreeMap;
use std::{io, process};

use rustix::process::{Resource, Rlimit, setrlimit};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

/// Bounds of the process.
#[derive(Clone, Copy, Debug)]
pub struct SandboxLimits {
    /// Address space, bytes, with what the process has already.
    pub memory_bytes: u64,
    /// Time of a processor, seconds.
    pub cpu_seconds: u64,
}

/// System calls that are left: those of a program that computes, and talks on what is open already.
const ALLOWED: [i64; 21] = [
    libc::SYS_read,
    libc::SYS_readv,
    libc::SYS_write,
    libc::SYS_writev,
    libc::SYS_recvfrom,
    libc::SYS_sendto,
    libc::SYS_close,
    libc::SYS_brk,
    libc::SYS_munmap,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_futex,
    libc::SYS_clock_gettime,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_sigaltstack,
    libc::SYS_exit,
    libc::SYS_exit_group,
];

/// Calls that are left for memory that nobody can run.
const WITHOUT_CODE: [i64; 2] = [libc::SYS_mmap, libc::SYS_mprotect];
/// Place of the protection among their arguments.
const PROTECTION: u8 = 2;

/// Confines this process, all of its threads, for the rest of its life: no file, no socket, no other process,
/// no new code. A call that is not left ends it.
///
/// Source: `seccomp(2)`. Differs from Landlock, which the issue names beside it: no call that takes a path is left,
/// so there is nothing for it to decide, and it is not in every kernel.
///
/// # Errors
///
/// Those of the kernel; the process must then not read the disk.
pub fn confine(limits: SandboxLimits) -> io::Result<()> {
    let bounded = |bytes| Rlimit { current: Some(bytes), maximum: Some(bytes) };
    setrlimit(Resource::As, bounded(limits.memory_bytes))?;
    setrlimit(Resource::Cpu, bounded(limits.cpu_seconds))?;
    setrlimit(Resource::Core, bounded(0))?;
    let filter = filter().map_err(io::Error::other)?;
    seccompiler::apply_filter_all_threads(&filter).map_err(io::Error::other)
}

fn filter() -> Result<BpfProgram, seccompiler::BackendError> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        ALLOWED.iter().map(|call| (*call, Vec::new())).collect();
    for call in WITHOUT_CODE {
        let masked = SeccompCmpOp::MaskedEq(libc::PROT_EXEC as u64);
        let condition = SeccompCondition::new(PROTECTION, SeccompCmpArgLen::Dword, masked, 0)?;
        rules.insert(call, vec![SeccompRule::new(vec![condition])?]);
    }
    let architecture = std::env::consts::ARCH.try_into()?;
    // A process that gives up, for want of memory, ends itself, and no other.
    let own = SeccompCmpOp::Eq;
    let this = SeccompCondition::new(0, SeccompCmpArgLen::Dword, own, u64::from(process::id()))?;
    rules.insert(libc::SYS_tgkill, vec![SeccompRule::new(vec![this])?]);
    // The standard library looks at a descriptor before it closes it, where debug assertions are on.
    let flags = SeccompCmpOp::Eq;
    let look = SeccompCondition::new(1, SeccompCmpArgLen::Dword, flags, libc::F_GETFD as u64)?;
    rules.insert(libc::SYS_fcntl, vec![SeccompRule::new(vec![look])?]);
    SeccompFilter::new(rules, SeccompAction::KillProcess, SeccompAction::Allow, architecture)?
        .try_into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_filter_can_be_made_and_lets_nobody_open_anything() {
        assert!(!filter().unwrap().is_empty());
        for call in [libc::SYS_openat, libc::SYS_socket, libc::SYS_execve, libc::SYS_clone] {
            assert!(!ALLOWED.contains(&call));
        }
    }
}
