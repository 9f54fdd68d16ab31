//! Serves a device in memory, a raw file or a volume over a unix socket, for the interoperability
//! tests and the benchmarks.
//!
//! ```text
//! nbd_serve --socket PATH (--memory BYTES | --file PATH | --volume DIRECTORY --size BYTES)
//!           [--threads N] [--read-only] [--requests-per-s N] [--bytes-per-s N] [--period-s S]
//! ```
//! A volume has its local log in the directory and an origin that keeps nothing, to which it is
//! pushed every `--period-s` seconds (default: 86400).
//!
//! Prints `ready` once it serves. Lines on the standard input are orders: `grow BYTES` (a device in
//! memory grows and its clients are disconnected), `disconnect`, `pushed` (nothing is dirty any
//! more), `stats`; its end stops the server.

use std::error::Error;
use std::io::BufRead;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use acstor_nbd::{Export, MemoryBudget, NbdServer, RateLimits, ServerConfig, bind_unix};
use acstor_overlay::BlockDevice;

mod file_device;
#[path = "../../tests/support/memory_device.rs"]
#[allow(dead_code, reason = "the tests use more of it")]
mod memory_device;
mod overlay_device;

use file_device::FileDevice;
use memory_device::MemoryDevice;

/// Time for what is under way when clients are disconnected.
const PATIENCE: Duration = Duration::from_secs(10);
/// Most that a device in memory grows to, relative to its first size.
const GROWTH_MAX: u64 = 4;

#[derive(Default)]
struct Options {
    socket: PathBuf,
    memory: Option<u64>,
    file: Option<PathBuf>,
    volume: Option<PathBuf>,
    size: u64,
    period_s: f64,
    threads: usize,
    is_read_only: bool,
    limits: RateLimits,
}

fn options() -> Result<Options, Box<dyn Error>> {
    let mut options = Options { threads: 2, period_s: 86400.0, ..Options::default() };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        if name == "--read-only" {
            options.is_read_only = true;
            continue;
        }
        let value = arguments.next().ok_or(format!("{name} needs a value"))?;
        match name.as_str() {
            "--socket" => options.socket = value.into(),
            "--memory" => options.memory = Some(value.parse()?),
            "--file" => options.file = Some(value.into()),
            "--volume" => options.volume = Some(value.into()),
            "--size" => options.size = value.parse()?,
            "--period-s" => options.period_s = value.parse()?,
            "--threads" => options.threads = value.parse()?,
            "--requests-per-s" => options.limits.requests_per_s = Some(value.parse()?),
            "--bytes-per-s" => options.limits.bytes_per_s = Some(value.parse()?),
            _ => return Err(format!("unknown option {name}").into()),
        }
    }
    Ok(options)
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = options()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(options.threads)
        .enable_all()
        .build()?;
    let memory = options.memory.map(|size| Arc::new(MemoryDevice::new(size, GROWTH_MAX * size)));
    let device: Arc<dyn BlockDevice> = match (&memory, &options.file, &options.volume) {
        (Some(device), None, None) => Arc::clone(device) as _,
        (None, Some(path), None) => Arc::new(FileDevice::open(path)?),
        (None, None, Some(path)) => {
            overlay_device::open(path, options.size, options.period_s, runtime.handle())?
        }
        _ => return Err("give one of --memory, --file and --volume".into()),
    };
    let mut export = Export::new("disk", device)?.with_description("nbd_serve");
    if options.is_read_only {
        export = export.read_only();
    }
    export.set_limits(options.limits);
    let listener = bind_unix(&options.socket, 0o600)?;
    let config = ServerConfig::new(MemoryBudget::new(256 << 20));
    let server = NbdServer::start(listener, Arc::new(export), config, runtime.handle())?;
    println!("ready");
    for line in std::io::stdin().lock().lines() {
        obey(&line?, &runtime, &server, memory.as_deref())?;
    }
    let is_clean = runtime.block_on(server.stop(PATIENCE));
    std::fs::remove_file(&options.socket)?;
    if is_clean { Ok(()) } else { Err("clients had to be cut off".into()) }
}

fn obey(
    order: &str,
    runtime: &tokio::runtime::Runtime,
    server: &NbdServer,
    memory: Option<&MemoryDevice>,
) -> Result<(), Box<dyn Error>> {
    let mut words = order.split_whitespace();
    match (words.next(), words.next(), memory) {
        (Some("grow"), Some(size), Some(device)) => {
            device.grow(size.parse()?);
            runtime.block_on(server.disconnect_clients(PATIENCE));
        }
        (Some("disconnect"), None, _) => {
            runtime.block_on(server.disconnect_clients(PATIENCE));
        }
        (Some("pushed"), None, Some(device)) => device.mark_pushed(),
        (Some("stats"), None, _) => {}
        _ => return Err(format!("unknown order {order}").into()),
    }
    let stats = server.stats();
    let counts: Vec<String> = stats
        .commands
        .iter()
        .map(|one| format!("{}={}/{}", one.command.as_str(), one.requests, one.errors))
        .collect();
    println!("done clients={} {}", stats.clients, counts.join(" "));
    Ok(())
}
