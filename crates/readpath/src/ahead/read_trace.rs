//! Read trace of one disk's boot: its readers' requests and the cost of each chunk, on demand.
//!
//! Two kinds of record, both described in `doc/source/contributor/read-path.rst`: guest reads, from
//! which a boot can be replayed, and chunk decisions, which say what each one waited for.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Serialize, Serializer};
use tokio::time::Instant;

use crate::{Tier, limits};

/// Records of one disk; the oldest go when the capacity is reached.
#[derive(Debug)]
pub(crate) struct ReadTrace {
    started: Instant,
    capacity: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    records: VecDeque<Record>,
    lost: u64,
    last_end_us: Option<u64>,
}

#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
enum Record {
    Read {
        at_us: u64,
        offset: u64,
        length: u64,
        think_us: u64,
        wait_us: u64,
    },
    Chunk {
        at_us: u64,
        chunk: u64,
        offset: u64,
        length: u64,
        tier: &'static str,
        wait_us: u64,
        #[serde(serialize_with = "as_text")]
        source: Option<Arc<str>>,
    },
    Lost {
        records: u64,
    },
}

fn as_text<S: Serializer>(source: &Option<Arc<str>>, serializer: S) -> Result<S::Ok, S::Error> {
    source.as_deref().serialize(serializer)
}

/// Cost of one chunk of a read.
#[derive(Clone, Debug)]
pub(crate) struct ChunkNote {
    pub(crate) chunk: u64,
    pub(crate) start: usize,
    pub(crate) len: usize,
    pub(crate) tier: Tier,
    pub(crate) wait: Duration,
    pub(crate) peer: Option<Arc<str>>,
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

impl ReadTrace {
    pub(crate) fn new(capacity: usize) -> ReadTrace {
        ReadTrace {
            started: Instant::now(),
            capacity: capacity.clamp(1, limits::TRACE_CAPACITY_MAX),
            state: Mutex::default(),
        }
    }

    /// Notes a read that began at `begin` and ended now, and its chunks.
    pub(crate) fn note(
        &self,
        begin: Instant,
        offset: u64,
        len: usize,
        chunk_size: u64,
        chunks: impl Iterator<Item = ChunkNote>,
    ) {
        let at_us = micros(begin.saturating_duration_since(self.started));
        let end_us = micros(self.started.elapsed());
        let mut state = self.state.lock();
        // How long the guest did something else: none where its reads overlap.
        let think_us = at_us.saturating_sub(state.last_end_us.unwrap_or(at_us));
        state.last_end_us = Some(end_us.max(state.last_end_us.unwrap_or(0)));
        let wait_us = end_us.saturating_sub(at_us);
        let read = Record::Read { at_us, offset, length: len as u64, think_us, wait_us };
        self.push(&mut state, read);
        for note in chunks {
            let record = Record::Chunk {
                at_us,
                chunk: note.chunk,
                offset: note.chunk * chunk_size + note.start as u64,
                length: note.len as u64,
                tier: note.tier.as_str(),
                wait_us: micros(note.wait),
                source: note.peer,
            };
            self.push(&mut state, record);
        }
    }

    fn push(&self, state: &mut State, record: Record) {
        if state.records.len() == self.capacity {
            state.records.pop_front();
            state.lost += 1;
        }
        state.records.push_back(record);
    }

    /// The records as JSON lines, oldest first; the first line tells how many were lost, if any.
    pub(crate) fn to_json_lines(&self) -> String {
        let state = self.state.lock();
        let lost = (state.lost > 0).then_some(Record::Lost { records: state.lost });
        let mut text = String::new();
        for record in lost.iter().chain(&state.records) {
            // Numbers and short texts: serialising them cannot fail.
            if let Ok(line) = serde_json::to_string(record) {
                text.push_str(&line);
                text.push('\n');
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(chunk: u64) -> ChunkNote {
        ChunkNote {
            chunk,
            start: 512,
            len: 1024,
            tier: Tier::Peer,
            wait: Duration::from_micros(700),
            peer: Some("b".into()),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn test_to_json_lines_holds_both_kinds_with_think_time() {
        let trace = ReadTrace::new(100);
        for _ in 0..2 {
            tokio::time::advance(Duration::from_millis(5)).await;
            let begin = Instant::now();
            tokio::time::advance(Duration::from_millis(1)).await;
            trace.note(begin, 66_048, 1024, 65_536, [note(1)].into_iter());
        }
        let lines: Vec<serde_json::Value> =
            trace.to_json_lines().lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 4);
        let expected = serde_json::json!({
            "kind": "read", "at_us": 11_000, "offset": 66_048, "length": 1024,
            "think_us": 5000, "wait_us": 1000,
        });
        assert_eq!(lines[2], expected);
        let expected = serde_json::json!({
            "kind": "chunk", "at_us": 11_000, "chunk": 1, "offset": 66_048, "length": 1024,
            "tier": "peer", "wait_us": 700, "source": "b",
        });
        assert_eq!(lines[3], expected);
    }

    #[test]
    fn test_note_beyond_the_capacity_drops_and_tells() {
        let trace = ReadTrace::new(4);
        for chunk in 0..10 {
            trace.note(Instant::now(), 0, 1, 65_536, [note(chunk)].into_iter());
        }
        let text = trace.to_json_lines();
        assert_eq!(text.lines().count(), 5);
        assert_eq!(text.lines().next(), Some(r#"{"kind":"lost","records":16}"#));
    }
}
