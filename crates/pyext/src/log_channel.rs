//! Log lines on their way from Rust threads to Python's logging.
//!
//! A data-plane thread never takes the interpreter's lock to log: events become lines in a bounded
//! queue, which a Python thread drains. A full queue drops the line and counts it.

use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::{EnvFilter, Layer, Registry, reload};

/// Lines kept while nobody drains them.
const LINES_MAX: usize = 4096;
/// Longest line, bytes; the rest of a longer one is cut.
const LINE_BYTES_MAX: usize = 4096;
/// Log directives where the operator chose none.
const DEFAULT_DIRECTIVES: &str = "info";

#[derive(Default)]
struct Queue {
    lines: VecDeque<String>,
    lost: u64,
}

/// The process's log channel; there is one, as there is one tracing subscriber.
pub(crate) struct LogChannel {
    queue: Arc<Mutex<Queue>>,
    filter: reload::Handle<EnvFilter, Registry>,
}

static CHANNEL: OnceLock<LogChannel> = OnceLock::new();

impl LogChannel {
    /// Returns the channel, installing it as the process's tracing subscriber at first use. Where
    /// another subscriber is installed already, the channel stays empty.
    pub(crate) fn installed() -> &'static LogChannel {
        CHANNEL.get_or_init(|| {
            let queue = Arc::new(Mutex::new(Queue::default()));
            let (filter, handle) = reload::Layer::new(EnvFilter::new(DEFAULT_DIRECTIVES));
            let layer = QueueLayer { queue: queue.clone() };
            let subscriber = tracing_subscriber::registry().with(filter).with(layer);
            // Failing means that an embedding program already collects the events.
            let _ = tracing::subscriber::set_global_default(subscriber);
            LogChannel { queue, filter: handle }
        })
    }

    /// Sets which events are kept, e.g. `info,acstor_peer=debug`.
    ///
    /// # Errors
    /// The text of what is wrong with the directives.
    pub(crate) fn set_directives(&self, directives: &str) -> Result<(), String> {
        let filter = EnvFilter::try_new(directives).map_err(|error| error.to_string())?;
        self.filter.reload(filter).map_err(|error| error.to_string())
    }

    /// Removes and returns at most `lines_max` lines, oldest first; lost lines are one line more.
    pub(crate) fn take(&self, lines_max: usize) -> Vec<String> {
        let mut queue = self.queue.lock();
        let count = queue.lines.len().min(lines_max);
        let mut lines: Vec<String> = queue.lines.drain(..count).collect();
        if queue.lost > 0 && lines.len() < lines_max {
            lines.push(format!("WARN acstor_log lost {} lines", queue.lost));
            queue.lost = 0;
        }
        lines
    }
}

struct QueueLayer {
    queue: Arc<Mutex<Queue>>,
}

impl<S: Subscriber> Layer<S> for QueueLayer {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        let metadata = event.metadata();
        let mut line = Line(format!("{} {}", metadata.level(), metadata.target()));
        event.record(&mut line);
        let mut queue = self.queue.lock();
        if queue.lines.len() < LINES_MAX {
            queue.lines.push_back(line.0);
        } else {
            queue.lost += 1;
        }
    }
}

/// A line under construction: the message, then `name=value` for each field.
struct Line(String);

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        let start = self.0.len();
        // Writing to a String cannot fail.
        let _ = match field.name() {
            "message" => write!(self.0, " {value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
        let cleaned = self.0[start..].replace(['\n', '\r'], " ");
        self.0.truncate(start);
        self.0.push_str(&cleaned);
        if self.0.len() > LINE_BYTES_MAX {
            let mut end = LINE_BYTES_MAX;
            while !self.0.is_char_boundary(end) {
                end -= 1;
            }
            self.0.truncate(end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Directives for this module alone: other tests of the program log beside this one.
    fn directives(level: &str) -> String {
        format!("{}={level}", module_path!())
    }

    #[test]
    fn lines_are_bounded_filtered_and_counted_when_lost() {
        let channel = LogChannel::installed();
        channel.set_directives(&directives("info")).unwrap();
        tracing::debug!("hidden");
        tracing::warn!(peer = "h1", "stalled\nfor long");
        let lines = channel.take(10);
        assert_eq!(lines.len(), 1);
        assert!(lines[0].starts_with("WARN "), "{}", lines[0]);
        assert!(lines[0].contains("stalled for long") && lines[0].contains("peer=\"h1\""));

        channel.set_directives(&directives("debug")).unwrap();
        for number in 0..LINES_MAX + 3 {
            tracing::debug!(number, "line");
        }
        assert_eq!(channel.take(LINES_MAX).len(), LINES_MAX);
        assert_eq!(channel.take(10), ["WARN acstor_log lost 3 lines"]);
        assert!(channel.set_directives("=%=").is_err());
    }
}
