//! The text form of a ring: for people, for diffs, and for rings written by hand in tests.
//!
//! ```text
//! acstor-ring 1
//! generation 7
//! seed 42
//! v-nodes 16
//! host compute-1 10.0.0.1:7800 weight 100 topology pod-1/rack-1 v-nodes 9
//! host compute-2 10.0.0.2:7800 weight 75 topology - v-nodes 7
//! arcs 0 0 1 1 0 0 0 1 0 0 1 1 0 1 0 1 0
//! ```
//!
//! A line `arcs` holds the number of its first v-node and then the owners of up to 16 v-nodes, as
//! numbers of `host` lines from 0. Empty lines and lines that start with `#` mean nothing.

use std::fmt::Write;
use std::str::{FromStr, SplitAsciiWhitespace};

use crate::codec::RING_VERSION;
use crate::ring::vnode_bits;
use crate::{Host, Ring, RingError, Topology, limits};

const ARCS_PER_LINE: usize = 16;

/// Detail of a text form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Everything but who owns which v-node; cannot be read back.
    Summary,
    /// Everything; [`Ring::from_text`] reads it back.
    Full,
}

impl Ring {
    /// Returns the text form.
    pub fn to_text(&self, detail: Detail) -> String {
        let mut text = format!(
            "acstor-ring {RING_VERSION}\ngeneration {}\nseed {}\nv-nodes {}\n",
            self.generation(),
            self.seed(),
            self.vnode_count()
        );
        for (host, vnode_count) in self.hosts().iter().zip(self.vnode_counts()) {
            let topology = match host.topology.to_string() {
                unknown if unknown.is_empty() => "-".to_owned(),
                known => known,
            };
            // Writing to a String cannot fail.
            let _ = writeln!(
                text,
                "host {} {} weight {} topology {topology} v-nodes {vnode_count}",
                host.name, host.address, host.weight
            );
        }
        if detail == Detail::Full {
            for (line, owners) in self.vnodes().chunks(ARCS_PER_LINE).enumerate() {
                let _ = write!(text, "arcs {}", line * ARCS_PER_LINE);
                for owner in owners {
                    let _ = write!(text, " {owner}");
                }
                text.push('\n');
            }
        }
        text
    }

    /// Reads a full text form. Never panics.
    ///
    /// # Errors
    /// [`RingError::Text`] with the number of the line that is not well formed, or any other
    /// [`RingError`] when the ring that it describes is not acceptable.
    pub fn from_text(text: &str) -> Result<Ring, RingError> {
        if text.len() > limits::RING_TEXT_LEN_MAX {
            return Err(RingError::Range("text is above 64 MiB"));
        }
        let mut parser = Parser::default();
        let mut last = 0;
        for (number, line) in text.lines().enumerate() {
            last = number + 1;
            let line = line.trim();
            if !line.is_empty() && !line.starts_with('#') {
                parser.line(line).map_err(|fault| fault.at(last))?;
            }
        }
        parser.finish(last)
    }
}

/// Defect of a line: of its form, or of its content.
enum Fault {
    Form(&'static str),
    Content(RingError),
}

impl Fault {
    fn at(self, line: usize) -> RingError {
        match self {
            Fault::Form(reason) => RingError::Text { line, reason },
            Fault::Content(error) => error,
        }
    }
}

#[derive(Default)]
struct Parser {
    version: Option<u32>,
    generation: Option<u64>,
    seed: Option<u64>,
    vnode_count: Option<u32>,
    hosts: Vec<Host>,
    host_vnode_counts: Vec<u32>,
    vnodes: Vec<u16>,
}

impl Parser {
    fn line(&mut self, line: &str) -> Result<(), Fault> {
        let mut words = line.split_ascii_whitespace();
        let keyword = words.next().unwrap_or_default();
        if self.version.is_none() && keyword != "acstor-ring" {
            return Err(Fault::Form("a ring starts with the line \"acstor-ring 1\""));
        }
        match keyword {
            "acstor-ring" => {
                let version = once(&mut self.version, &mut words)?;
                if version != RING_VERSION {
                    return Err(Fault::Content(RingError::Version(version)));
                }
            }
            "generation" => drop(once(&mut self.generation, &mut words)?),
            "seed" => drop(once(&mut self.seed, &mut words)?),
            "v-nodes" => {
                let count = once(&mut self.vnode_count, &mut words)?;
                vnode_bits(u64::from(count)).map_err(Fault::Content)?;
            }
            "host" => self.host(&mut words)?,
            "arcs" => self.arcs(&mut words)?,
            _ => return Err(Fault::Form("unknown keyword")),
        }
        match words.next() {
            Some(_) => Err(Fault::Form("too many words")),
            None => Ok(()),
        }
    }

    fn host(&mut self, words: &mut SplitAsciiWhitespace<'_>) -> Result<(), Fault> {
        if self.hosts.len() == limits::HOSTS_MAX {
            return Err(Fault::Form("more than 16384 hosts"));
        }
        let (name, address) = (words.next(), words.next());
        let (Some(name), Some(address)) = (name, address) else {
            return Err(Fault::Form("a host has a name and an address"));
        };
        let weight = named(words, "weight")?;
        let topology: String = named(words, "topology")?;
        let topology: Topology = match topology.as_str() {
            "-" => Topology::UNKNOWN,
            known => known.parse().map_err(Fault::Content)?,
        };
        self.host_vnode_counts.push(named(words, "v-nodes")?);
        self.hosts.push(Host::new(name, address, weight).with_topology(topology));
        Ok(())
    }

    fn arcs(&mut self, words: &mut SplitAsciiWhitespace<'_>) -> Result<(), Fault> {
        let Some(vnode_count) = self.vnode_count else {
            return Err(Fault::Form("\"v-nodes\" comes before \"arcs\""));
        };
        let first: usize = number(words.next())?;
        if first != self.vnodes.len() {
            return Err(Fault::Form("arcs are not in order"));
        }
        for owner in words.by_ref() {
            if self.vnodes.len() == vnode_count as usize {
                return Err(Fault::Form("more arcs than v-nodes"));
            }
            self.vnodes.push(number(Some(owner))?);
        }
        Ok(())
    }

    fn finish(self, line: usize) -> Result<Ring, RingError> {
        let missing = |reason| RingError::Text { line, reason };
        self.version.ok_or(missing("the line \"acstor-ring 1\" is missing"))?;
        let generation = self.generation.ok_or(missing("the line \"generation\" is missing"))?;
        let seed = self.seed.ok_or(missing("the line \"seed\" is missing"))?;
        let vnode_count = self.vnode_count.ok_or(missing("the line \"v-nodes\" is missing"))?;
        if self.vnodes.len() != vnode_count as usize {
            return Err(missing("fewer arcs than v-nodes (a summary cannot be read back)"));
        }
        let ring = Ring::from_parts(generation, seed, self.hosts, self.vnodes)?;
        if ring.vnode_counts() != self.host_vnode_counts {
            return Err(missing("the hosts' counts of v-nodes differ from the arcs"));
        }
        Ok(ring)
    }
}

/// Parses the next word into `field`, which must be empty.
fn once<T: FromStr + Copy>(
    field: &mut Option<T>,
    words: &mut SplitAsciiWhitespace<'_>,
) -> Result<T, Fault> {
    if field.is_some() {
        return Err(Fault::Form("a keyword appears twice"));
    }
    let value = number(words.next())?;
    *field = Some(value);
    Ok(value)
}

/// Parses the word after the word `name`.
fn named<T: FromStr>(words: &mut SplitAsciiWhitespace<'_>, name: &str) -> Result<T, Fault> {
    if words.next() != Some(name) {
        return Err(Fault::Form(
            "a host line is: host NAME ADDRESS weight N topology PATH|- v-nodes N",
        ));
    }
    number(words.next())
}

fn number<T: FromStr>(word: Option<&str>) -> Result<T, Fault> {
    word.and_then(|word| word.parse().ok())
        .ok_or(Fault::Form("a number is missing, malformed or out of range"))
}
