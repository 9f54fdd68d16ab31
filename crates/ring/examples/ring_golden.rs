//! Writes the golden rings: `cargo run -p acstor-ring --example ring_golden -- tests/golden`.
//!
//! Run it only together with a new format version; the tests compare what it writes with what is
//! there. Its input is `ring-v1.json`, which Python reads as well.

use std::error::Error;
use std::path::PathBuf;

use acstor_ring::{Detail, Host, Ring, RingBuilder};
use serde_json::Value;

fn main() -> Result<(), Box<dyn Error>> {
    let directory = PathBuf::from(std::env::args().nth(1).ok_or("usage: ring_golden DIRECTORY")?);
    let input: Value = serde_json::from_slice(&std::fs::read(directory.join("ring-v1.json"))?)?;
    let ring = build(&input)?;
    std::fs::write(directory.join("ring-v1.bin"), ring.encode())?;
    std::fs::write(directory.join("ring-v1.txt"), ring.to_text(Detail::Full))?;
    Ok(())
}

/// Builds the first ring, then the generation after it, which is the golden one.
fn build(input: &Value) -> Result<Ring, Box<dyn Error>> {
    let number = |value: &Value| value.as_u64().ok_or("a number is missing");
    let first = RingBuilder::new(number(&input["seed"])?)
        .vnodes(number(&input["vnodes"])?.try_into()?)
        .generation(number(&input["first"]["generation"])?)
        .hosts(hosts(&input["first"]["hosts"])?)
        .build()?;
    let next = RingBuilder::succeeding(&first)
        .generation(number(&input["next"]["generation"])?)
        .hosts(hosts(&input["next"]["hosts"])?)
        .build()?;
    Ok(next)
}

fn hosts(values: &Value) -> Result<Vec<Host>, Box<dyn Error>> {
    let text = |value: &Value| value.as_str().map(str::to_owned).ok_or("a text is missing");
    let values = values.as_array().ok_or("hosts are missing")?;
    let host = |value: &Value| -> Result<Host, Box<dyn Error>> {
        let weight = value["weight"].as_u64().ok_or("a weight is missing")?;
        let host = Host::new(text(&value["name"])?, text(&value["address"])?, weight.try_into()?);
        Ok(host.with_topology(text(&value["topology"])?.parse()?))
    };
    values.iter().map(host).collect()
}
