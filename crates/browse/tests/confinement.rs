//! Attempts of confined processes to do what they may, and what they may not.
#![expect(clippy::unwrap_used, reason = "a test ends at the first surprise")]

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::{env, fs, net, thread};

use acstor_browse::{SandboxLimits, confine};

const LIMITS: SandboxLimits = SandboxLimits { memory_bytes: 1 << 30, cpu_seconds: 1 };
/// Names what a process of this test is to try; none: it is the test's own.
const ATTEMPT: &str = "ACSTOR_BROWSE_ATTEMPT";

/// Tries something in a process of its own, once that is confined.
fn attempt(name: &str) -> ExitStatus {
    let mut command = Command::new(env::current_exe().unwrap());
    let command = command.args(["--exact", "confined", "--test-threads", "1"]);
    // A backtrace would open files.
    let command = command.env(ATTEMPT, name).env_remove("RUST_BACKTRACE");
    let output = command.output().unwrap();
    println!("{name}: {}", String::from_utf8_lossy(&output.stderr));
    output.status
}

/// Runs in the processes that [`attempt`] starts.
#[test]
fn confined() {
    let Ok(name) = env::var(ATTEMPT) else { return };
    let (mut one, mut other) = UnixStream::pair().unwrap();
    confine(LIMITS).unwrap();
    match name.as_str() {
        "talk" => {
            one.write_all(b"all is well").unwrap();
            let mut heard = [0; 11];
            other.read_exact(&mut heard).unwrap();
            let large = vec![1_u8; 32 << 20];
            assert_eq!(large.iter().map(|byte| usize::from(*byte)).sum::<usize>(), 32 << 20);
        }
        "open" => drop(fs::File::open("/etc/hostname")),
        "connect" => drop(net::TcpStream::connect("127.0.0.1:1")),
        "start" => drop(Command::new("/bin/true").status()),
        "thread" => drop(thread::Builder::new().spawn(|| ())),
        "memory" => drop(vec![1_u8; 2 << 30]),
        "compute" => loop {
            std::hint::spin_loop();
        },
        other => panic!("nobody tries {other}"),
    }
    // The harness around this would call what is not left.
    std::process::exit(0);
}

#[test]
fn test_confined_process_can_compute_and_talk_on_what_is_open() {
    assert!(attempt("talk").success());
}

#[test]
fn test_confined_process_ends_where_it_does_more() {
    for name in ["open", "connect", "start", "thread"] {
        assert_eq!(attempt(name).signal(), Some(libc::SIGSYS), "{name}");
    }
}

#[test]
fn test_confined_process_has_bounded_memory_and_time() {
    assert_eq!(attempt("memory").signal(), Some(libc::SIGABRT), "it did nothing that it may not");
    assert!(matches!(attempt("compute").signal(), Some(libc::SIGXCPU | libc::SIGKILL)));
}
