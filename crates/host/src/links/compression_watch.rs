//! Cost and effect of compression between peers, measured on this host all the time.
//!
//! A peer may compress an answer where that saves more time on the way than both ends spend on it; both are
//! measured here, and so is whether the host's processors have time for it. Where they have not, nothing is
//! compressed, neither for this host nor by it.

use std::sync::Arc;
use std::time::Duration;

use acstor_peer::{ClientStats, CompressionStats};
use acstor_readpath::{CompressionCost, compression_limits as limits};

use super::cpu_time::CpuTime;
use crate::Parts;

/// Time between two looks.
const INTERVAL: Duration = Duration::from_secs(2);

/// Weight of what came since the last look.
const SAMPLE_WEIGHT: f64 = 0.3;

/// Weight at each look without news of what is taken for true unseen, so that content that does not compress is
/// tried again: half of it in some 70 s.
const UNSEEN_WEIGHT: f64 = 0.02;

/// Totals since the start of the data plane.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Totals {
    /// Bytes of the chunks that peers might have compressed, and those that it took off them.
    compressible: u64,
    saved: u64,
    compressed: Work,
    decompressed: Work,
    cpu: Option<CpuTime>,
}

/// Time that was spent on so many bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Work {
    time: Duration,
    bytes: u64,
}

impl Work {
    /// Time of one chunk; `None` where none was measured.
    fn of_chunk(&self, chunk_bytes: u64) -> Option<Duration> {
        let share = (self.bytes > 0).then(|| chunk_bytes as f64 / self.bytes as f64)?;
        Some(self.time.mul_f64(share))
    }
}

impl Totals {
    fn of(client: &ClientStats, server: Option<CompressionStats>, cpu: Option<CpuTime>) -> Totals {
        let server = server.unwrap_or_default();
        Totals {
            compressible: client.compressible_bytes,
            saved: client.bytes_saved,
            compressed: Work { time: server.time, bytes: server.bytes },
            decompressed: Work {
                time: client.decompression_time,
                bytes: client.decompressed_bytes,
            },
            cpu,
        }
    }
}

/// The measurement of one host.
struct CompressionWatch {
    chunk_bytes: u64,
    before: Totals,
    ratio: f64,
}

impl CompressionWatch {
    fn new(chunk_bytes: u64) -> CompressionWatch {
        let ratio = limits::COMPRESSION_RATIO_UNSEEN;
        CompressionWatch { chunk_bytes, before: Totals::default(), ratio }
    }

    /// Returns what compression costs and saves, by what came since the last look.
    fn note(&mut self, now: Totals) -> CompressionCost {
        let before = std::mem::replace(&mut self.before, now);
        let offered = now.compressible.saturating_sub(before.compressible);
        if offered > 0 {
            let saved = now.saved.saturating_sub(before.saved) as f64 / offered as f64;
            self.ratio += SAMPLE_WEIGHT * (1.0 - saved.min(1.0) - self.ratio);
        } else {
            self.ratio += UNSEEN_WEIGHT * (limits::COMPRESSION_RATIO_UNSEEN - self.ratio);
        }
        let works = [now.compressed, now.decompressed].map(|work| work.of_chunk(self.chunk_bytes));
        let time = match works {
            [Some(compressing), Some(decompressing)] => compressing + decompressing,
            _ => limits::COMPRESSION_TIME_UNSEEN,
        };
        let idle = before.cpu.zip(now.cpu).and_then(|(before, now)| now.idle_share_since(before));
        let is_cpu_free = idle.is_none_or(|idle| idle > limits::COMPRESSION_CPU_IDLE_MIN);
        CompressionCost { ratio: self.ratio, time, is_cpu_free }
    }
}

/// Measures for ever.
pub(crate) async fn watch_compression(parts: Arc<Parts>) {
    let mut watch = CompressionWatch::new(parts.chunk_size.bytes() as u64);
    loop {
        tokio::time::sleep(INTERVAL).await;
        let server = parts.peer_server_stats().map(|server| server.compression);
        let totals = Totals::of(&parts.peer_client.stats(), server, CpuTime::now());
        let cost = watch.note(totals);
        parts.read_path.set_compression(cost);
        if let Some(peers) = &parts.serving.lock().peers {
            peers.set_cpu_busy(!cost.is_cpu_free);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: u64 = 65_536;

    fn totals(compressible: u64, saved: u64, idle: u64) -> Totals {
        let cpu = Some(CpuTime { idle, total: 100 * compressible / CHUNK });
        Totals { compressible, saved, cpu, ..Totals::default() }
    }

    #[test]
    fn test_ratio_follows_what_came_and_forgets_it_in_time() {
        let mut watch = CompressionWatch::new(CHUNK);
        for number in 1..40 {
            watch.note(totals(number * CHUNK, 0, 0));
        }
        assert!(watch.ratio > 0.99, "{}: nothing was saved", watch.ratio);
        let last = watch.before;
        for _ in 0..200 {
            watch.note(last);
        }
        assert!(watch.ratio < 0.51, "{}: tried again", watch.ratio);
        for number in 40..80 {
            let saved = last.saved + (number - 39) * CHUNK * 3 / 4;
            watch.note(totals(number * CHUNK, saved, 0));
        }
        assert!((watch.ratio - 0.25).abs() < 0.01, "{}", watch.ratio);
    }

    #[test]
    fn test_cost_is_that_of_both_ends_once_both_are_measured() {
        let mut watch = CompressionWatch::new(CHUNK);
        let compressed = Work { time: Duration::from_millis(30), bytes: 300 * CHUNK };
        let one = Totals { compressed, ..Totals::default() };
        assert_eq!(watch.note(one).time, limits::COMPRESSION_TIME_UNSEEN);
        let decompressed = Work { time: Duration::from_millis(3), bytes: 100 * CHUNK };
        assert_eq!(watch.note(Totals { decompressed, ..one }).time, Duration::from_micros(130));
    }

    #[test]
    fn test_processors_are_free_while_a_fifth_of_their_time_is_idle() {
        let mut watch = CompressionWatch::new(CHUNK);
        assert!(watch.note(totals(CHUNK, 0, 0)).is_cpu_free, "not known");
        assert!(!watch.note(totals(2 * CHUNK, 0, 20)).is_cpu_free);
        assert!(watch.note(totals(3 * CHUNK, 0, 41)).is_cpu_free);
        assert!(watch.note(Totals { cpu: None, ..totals(4 * CHUNK, 0, 0) }).is_cpu_free);
    }
}
