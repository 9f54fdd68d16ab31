//! Latencies, throughput and CPU time of one run.

use std::error::Error;
use std::time::{Duration, Instant};

use crate::options::Options;

/// Ticks of `/proc/self/stat` per second: the same on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// Returns the CPU seconds, user and system, that this process has used.
pub fn cpu_seconds() -> Result<f64, Box<dyn Error>> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    let after_name = stat.rsplit_once(')').ok_or("no process name")?.1;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let ticks = |position: usize| -> Result<f64, Box<dyn Error>> {
        Ok(fields.get(position).ok_or("too few fields")?.parse()?)
    };
    Ok((ticks(11)? + ticks(12)?) / TICKS_PER_SECOND)
}

/// Schedule of a run: warm-up, measurement, end.
#[derive(Clone, Copy)]
pub struct Schedule {
    begin: Instant,
    pub end: Instant,
}

impl Schedule {
    pub fn starting_now(options: &Options) -> Schedule {
        let begin = Instant::now() + options.duration / 10;
        Schedule { begin, end: begin + options.duration }
    }

    /// Returns whether a request that began then counts.
    pub fn counts(&self, began: Instant) -> bool {
        began >= self.begin
    }
}

/// Measurements of one run.
pub struct Measured {
    /// Latency of each request, sorted.
    latencies: Vec<Duration>,
    wall: Duration,
    cpu_seconds: f64,
    connections: usize,
    /// Share that compression took off the bytes of all chunks, those of the warming up included.
    saved_share: f64,
    /// Requests that failed, where they are counted; they have no latency.
    errors: u64,
}

impl Measured {
    pub fn new(
        mut latencies: Vec<Duration>,
        wall: Duration,
        cpu_seconds: f64,
        connections: usize,
    ) -> Measured {
        latencies.sort_unstable();
        Measured { latencies, wall, cpu_seconds, connections, saved_share: 0.0, errors: 0 }
    }

    /// Notes what compression took off the bytes.
    pub fn with_saved_share(self, saved_share: f64) -> Measured {
        Measured { saved_share, ..self }
    }

    /// Notes how many requests failed.
    pub fn with_errors(self, errors: u64) -> Measured {
        Measured { errors, ..self }
    }

    fn quantile_us(&self, per_cent: usize) -> f64 {
        let last = self.latencies.len().saturating_sub(1);
        let position = (self.latencies.len() * per_cent / 100).min(last);
        self.latencies.get(position).map_or(f64::NAN, |latency| latency.as_secs_f64() * 1e6)
    }

    /// The result; MB are 10^6 bytes, GiB 2^30. CPU time is this process's alone.
    pub fn to_json(&self, options: &Options) -> serde_json::Value {
        let bytes = self.latencies.len() as f64 * f64::from(options.chunk_size);
        serde_json::json!({
            "mode": options.mode.as_str(),
            "chunk_size_bytes": options.chunk_size,
            "connections": self.connections,
            "depth": options.depth,
            "requests": self.latencies.len(),
            "errors": self.errors,
            "bytes": bytes,
            "saved_share": self.saved_share,
            "p50_us": self.quantile_us(50),
            "p99_us": self.quantile_us(99),
            "throughput_mb_s": bytes / self.wall.as_secs_f64() / 1e6,
            "client_cpu_seconds_per_gib": self.cpu_seconds / (bytes / f64::from(1 << 30)),
        })
    }
}
