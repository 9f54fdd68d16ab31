//! Serves one disk of computed content, for measurements and for the tests that kill a server.
//!
//! ```text
//! fuse_serve --mount DIRECTORY [--fd N] [--size BYTES] [--store DIRECTORY] [--threads N]
//!            [--wait-every N --delay-ms MS] [--read-ahead-kb N] [--session FILE] [--own]
//! ```
//! Without `--fd` it mounts; with it, it takes the connection of that descriptor over. `--store`
//! keeps the chunks in a chunk store, so that answers come from its mapped file. `--own` unmounts
//! when the standard input ends; without it the mount is left to whoever holds the descriptor.
//! Prints `ready` once it serves.

use std::error::Error;
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use acstor_fuse::{FileTable, FuseConfig, FuseHooks, FuseServer};
use acstor_store::{ChunkStore, EvictionKind, StoreConfig};
use acstor_types::{ChunkSize, DiskId};

#[path = "../tests/support/pattern.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod pattern;

const SEED: u64 = 42;

struct Options {
    config: FuseConfig,
    fd: Option<i32>,
    size: u64,
    store: Option<String>,
    wait_every: u64,
    delay_ms: u64,
    own: bool,
}

fn options() -> Result<Options, Box<dyn Error>> {
    let mut options = Options {
        config: FuseConfig::new(""),
        fd: None,
        size: 256 << 20,
        store: None,
        wait_every: 0,
        delay_ms: 0,
        own: false,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        if name == "--own" {
            options.own = true;
            continue;
        }
        let value = arguments.next().ok_or(format!("{name} needs a value"))?;
        match name.as_str() {
            "--mount" => options.config.mount_point = value.into(),
            "--fd" => options.fd = Some(value.parse()?),
            "--size" => options.size = value.parse()?,
            "--store" => options.store = Some(value),
            "--threads" => options.config.threads = value.parse()?,
            "--wait-every" => options.wait_every = value.parse()?,
            "--delay-ms" => options.delay_ms = value.parse()?,
            "--read-ahead-kb" => options.config.read_ahead_kb = value.parse()?,
            "--session" => options.config.session_file = Some(value.into()),
            _ => return Err(format!("unknown option {name}").into()),
        }
    }
    Ok(options)
}

fn view(options: &Options) -> Result<pattern::PatternView, Box<dyn Error>> {
    let view = match &options.store {
        None => pattern::PatternView::new(SEED, options.size),
        Some(path) => {
            let config = StoreConfig {
                path: path.into(),
                capacity_bytes: options.size + options.size / 4 + (64 << 20),
                chunk_size: ChunkSize::DEFAULT,
                eviction: EvictionKind::default(),
            };
            pattern::PatternView::in_store(SEED, options.size, ChunkStore::open(&config)?)
        }
    };
    view.knobs.wait_every.store(options.wait_every, Ordering::Relaxed);
    view.knobs.delay_ms.store(options.delay_ms, Ordering::Relaxed);
    Ok(view)
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = options()?;
    let view = Arc::new(view(&options)?);
    let server = match options.fd {
        None => FuseServer::mount(options.config.clone())?,
        Some(fd) => {
            // SAFETY: the caller passed this descriptor for us to own.
            let fd = unsafe { OwnedFd::from_raw_fd(fd) };
            FuseServer::take_over(options.config.clone(), fd)?
        }
    };
    let disk = DiskId::from_bytes([1; 16]);
    let table = Arc::new(FileTable::new());
    table.attach(&format!("{disk}.raw"), disk, view)?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let session = server.serve(table, runtime.handle().clone(), FuseHooks::default())?;
    println!("ready");
    if options.own {
        std::io::stdin().read_to_end(&mut Vec::new())?;
        eprintln!("{:?}", session.stats());
        let outcome = session.unmount(Duration::from_secs(5))?;
        println!("{outcome:?}");
    } else {
        session.wait(None);
    }
    Ok(())
}
