//! Hit ratios of the eviction policies on a recorded trace of reads.
//!
//! ```text
//! eviction_compare [--chunk-size BYTES] [--slots N,N,...] [--json] TRACE...
//! ```
//!
//! A trace is a boot trace (`reference/formats/boot-trace`, version 1), or a text with one read per
//! line: `offset length`, or a JSON object with the members `offset` and `length` and, where
//! several disks are in one trace, `disk`; other members and lines that start with `#` are ignored.
//! Several traces are played one after the other against one cache, as boots
//! that follow each other are (give a trace twice to see the second boot); without a `disk` member
//! the name of the file is the disk. Sizes are in slots; the default is a row of shares of the
//! distinct chunks of the traces.

use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::fs;

use acstor_store::EvictionKind;
use acstor_store::eviction::TouchFilter;
use acstor_types::{ChunkSize, DiskId, Oid};
use serde_json::{Value, json};

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Shares of the distinct chunks, per cent, that the cache can hold where no size was given.
const SHARES: [u32; 6] = [5, 10, 20, 40, 60, 80];
const SLOTS_MIN: u32 = 8;

struct Options {
    chunk_size: ChunkSize,
    slots: Vec<u32>,
    as_json: bool,
    traces: Vec<String>,
}

fn options() -> Outcome<Options> {
    let mut options = Options {
        chunk_size: ChunkSize::DEFAULT,
        slots: Vec::new(),
        as_json: false,
        traces: Vec::new(),
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--json" => options.as_json = true,
            "--chunk-size" => {
                let bytes = arguments.next().ok_or("--chunk-size needs a number")?.parse()?;
                options.chunk_size =
                    ChunkSize::new(bytes).ok_or("--chunk-size: a power of two, 4096 to 4194304")?;
            }
            "--slots" => {
                let list = arguments.next().ok_or("--slots needs numbers")?;
                options.slots = list.split(',').map(str::parse).collect::<Result<_, _>>()?;
                if options.slots.contains(&0) {
                    return Err("--slots: at least 1".into());
                }
            }
            flag if flag.starts_with('-') => return Err(format!("unknown option {flag}").into()),
            _ => options.traces.push(argument),
        }
    }
    if options.traces.is_empty() {
        return Err(
            "usage: eviction_compare [--chunk-size BYTES] [--slots N,N] [--json] TRACE...".into()
        );
    }
    Ok(options)
}

/// Returns offset, length and disk of a line, or `None` when it is a comment.
fn read_of(line: &str) -> Outcome<Option<(u64, u64, Option<String>)>> {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Ok(None);
    }
    if line.starts_with('[') {
        let value: Value = serde_json::from_str(line)?;
        let number = |index: usize| value[index].as_u64().ok_or("a read is [offset, length, ...]");
        return Ok(Some((number(0)?, number(1)?, None)));
    }
    if line.starts_with('{') {
        let value: Value = serde_json::from_str(line)?;
        if let Some(format) = value["format"].as_str() {
            if format != "acstor-boot-trace" || value["version"] != 1 {
                return Err(format!("format {format} version {}: unknown", value["version"]).into());
            }
            return Ok(None); // the first line of a boot trace
        }
        let number = |name: &str| value[name].as_u64().ok_or(format!("no number {name:?}"));
        let disk = value["disk"].as_str().map(str::to_owned);
        return Ok(Some((number("offset")?, number("length")?, disk)));
    }
    let mut fields = line.split_whitespace();
    let mut number =
        || -> Outcome<u64> { Ok(fields.next().ok_or("a line is: offset length")?.parse()?) };
    let (offset, length) = (number()?, number()?);
    Ok(Some((offset, length, None)))
}

/// Returns the chunks that the reads of a trace touch, in order; chunks are named by 64 bits.
fn chunks_of(path: &str, chunk_size: ChunkSize) -> Outcome<Vec<u64>> {
    let mut chunks = Vec::new();
    for (number, line) in fs::read_to_string(path)?.lines().enumerate() {
        let read = read_of(line).map_err(|error| format!("{path}:{}: {error}", number + 1))?;
        let Some((offset, length, disk)) = read else {
            continue;
        };
        let name = acstor_types::Digest::of(disk.as_deref().unwrap_or(path).as_bytes());
        let disk = DiskId::from_bytes(*name.as_bytes().first_chunk().ok_or("digest")?);
        let end = offset.checked_add(length).ok_or("offset + length is too large")?;
        for index in chunk_size.index_of(offset)..chunk_size.count_for(end) {
            chunks.push(Oid::of(&disk, index).0);
        }
    }
    Ok(chunks)
}

#[derive(Default)]
struct Hits {
    reads: u64,
    hits: u64,
}

/// Plays chunk reads against a cache of `slots` slots.
fn play(kind: EvictionKind, slots: u32, reads: &[u64]) -> Hits {
    let policy = kind.policy(slots);
    let filter = TouchFilter::new();
    let mut slot_of: HashMap<u64, u32> = HashMap::with_capacity(slots as usize);
    let mut chunk_in = Vec::with_capacity(slots as usize);
    let mut outcome = Hits::default();
    for chunk in reads {
        outcome.reads += 1;
        if let Some(slot) = slot_of.get(chunk) {
            outcome.hits += 1;
            if filter.is_new_use(*slot) {
                policy.touch(*slot);
            }
            continue;
        }
        let slot = if (chunk_in.len() as u32) < slots {
            chunk_in.push(*chunk);
            chunk_in.len() as u32 - 1
        } else {
            let Some(slot) = policy.evict(&mut |slot| Some(chunk_in[slot as usize])) else {
                continue; // never: every slot may go
            };
            slot_of.remove(&chunk_in[slot as usize]);
            chunk_in[slot as usize] = *chunk;
            slot
        };
        slot_of.insert(*chunk, slot);
        policy.admit(slot, *chunk);
    }
    outcome
}

/// Hits of the policy that knows the future (Belady 1966): what no policy can exceed.
fn optimal(slots: u32, reads: &[u64]) -> Hits {
    let mut next_use = vec![u64::MAX; reads.len()];
    let mut seen = HashMap::new();
    for (time, chunk) in reads.iter().enumerate().rev() {
        next_use[time] = seen.insert(*chunk, time as u64).unwrap_or(u64::MAX);
    }
    let mut held: HashMap<u64, u64> = HashMap::new();
    let mut by_use = std::collections::BTreeSet::new();
    let mut outcome = Hits { reads: reads.len() as u64, hits: 0 };
    for (time, chunk) in reads.iter().enumerate() {
        if let Some(due) = held.insert(*chunk, next_use[time]) {
            by_use.remove(&(due, *chunk));
            outcome.hits += 1;
        }
        by_use.insert((next_use[time], *chunk));
        if held.len() as u32 > slots
            && let Some((_, furthest)) = by_use.pop_last()
        {
            held.remove(&furthest);
        }
    }
    outcome
}

fn main() -> Outcome<()> {
    let options = options()?;
    let mut reads = Vec::new();
    for trace in &options.traces {
        reads.extend(chunks_of(trace, options.chunk_size)?);
    }
    let distinct = reads.iter().collect::<HashSet<_>>().len() as u32;
    let mut sizes = options.slots.clone();
    if sizes.is_empty() {
        let size = |share| (u64::from(distinct) * u64::from(share) / 100) as u32;
        sizes = SHARES.into_iter().map(|share| size(share).max(SLOTS_MIN)).collect();
        sizes.dedup();
    }
    let mut rows = Vec::new();
    for slots in sizes {
        let mut ratios = serde_json::Map::new();
        let ratio = |hits: Hits| hits.hits as f64 / hits.reads.max(1) as f64;
        for kind in EvictionKind::ALL {
            ratios.insert(kind.to_string(), json!(ratio(play(kind, slots, &reads))));
        }
        ratios.insert("optimal".to_owned(), json!(ratio(optimal(slots, &reads))));
        rows.push((slots, ratios));
    }
    if options.as_json {
        let rows: Vec<_> = rows
            .iter()
            .map(|(slots, ratios)| json!({"slots": slots, "hit_ratio": ratios}))
            .collect();
        let report = json!({
            "chunk_size_bytes": options.chunk_size.bytes(),
            "chunk_reads": reads.len(),
            "distinct_chunks": distinct,
            "sizes": rows,
        });
        println!("{report:#}");
        return Ok(());
    }
    println!("{} reads of chunks, {distinct} distinct chunks; hit ratio, per cent", reads.len());
    let names = EvictionKind::ALL.map(EvictionKind::as_str);
    println!(
        "{:>10} {:>8} {:>8} {:>8} {:>8} {:>8}",
        "slots", names[0], names[1], names[2], names[3], "optimal"
    );
    for (slots, ratios) in rows {
        let per_cent = |name: &str| ratios[name].as_f64().unwrap_or(f64::NAN) * 100.0;
        let columns = names.map(|name| format!("{:8.2}", per_cent(name)));
        println!("{slots:>10} {} {:8.2}", columns.join(" "), per_cent("optimal"));
    }
    Ok(())
}
