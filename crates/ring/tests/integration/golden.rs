//! Golden files, which Python reads as well: the bytes of a ring, what it answers, and OIDs.

#![expect(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::path::PathBuf;

use acstor_ring::{Detail, Host, RING_VERSION, Ring, RingBuilder, Threshold};
use acstor_types::{DiskId, Oid};
use serde_json::Value;

fn golden(name: &str) -> Vec<u8> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    std::fs::read(directory.join(name)).unwrap()
}

fn golden_json(name: &str) -> Value {
    serde_json::from_slice(&golden(name)).unwrap()
}

fn oid_of(vector: &Value) -> Oid {
    let disk: DiskId = vector["disk"].as_str().unwrap().parse().unwrap();
    Oid::of(&disk, vector["index"].as_u64().unwrap())
}

fn hosts(values: &Value) -> Vec<Host> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let host = |value: &Value| {
        let weight = value["weight"].as_u64().unwrap() as u32;
        Host::new(text(&value["name"]), text(&value["address"]), weight)
            .with_topology(text(&value["topology"]).parse().unwrap())
    };
    values.as_array().unwrap().iter().map(host).collect()
}

/// The promise that equal inputs give equal rings: on every platform, in every release.
#[test]
fn builder_change_of_what_it_builds_version_requires_update() {
    let input = golden_json("ring-v1.json");
    let first = RingBuilder::new(input["seed"].as_u64().unwrap())
        .vnodes(input["vnodes"].as_u64().unwrap() as u32)
        .generation(input["first"]["generation"].as_u64().unwrap())
        .hosts(hosts(&input["first"]["hosts"]))
        .build()
        .unwrap();
    let next = RingBuilder::succeeding(&first)
        .generation(input["next"]["generation"].as_u64().unwrap())
        .hosts(hosts(&input["next"]["hosts"]))
        .build()
        .unwrap();
    assert_eq!(next, Ring::decode(&golden("ring-v1.bin")).unwrap());
}

#[test]
fn binary_and_text_form_change_of_version_requires_update() {
    assert_eq!(RING_VERSION, 1, "make golden files of the new version; keep reading the old ones");
    let ring = Ring::decode(&golden("ring-v1.bin")).unwrap();
    assert_eq!(ring.encode(), golden("ring-v1.bin"));
    assert_eq!(ring.to_text(Detail::Full).as_bytes(), golden("ring-v1.txt"));
}

#[test]
fn golden_ring_answers_as_computed_elsewhere() {
    let ring = Ring::decode(&golden("ring-v1.bin")).unwrap();
    let lookups = golden_json("ring-v1.json")["lookups"].as_array().unwrap().clone();
    assert!(!lookups.is_empty());
    for lookup in &lookups {
        let oid = oid_of(lookup);
        let from = lookup["from"].as_str().and_then(|name| ring.host_id(name));
        let threshold = Threshold(lookup["threshold"].as_u64().unwrap() as u8);
        let mut candidates = ring.candidates(oid, from, threshold);
        let names: Vec<&str> = candidates.by_ref().map(|host| host.name.as_str()).collect();
        let expected: Vec<&str> =
            lookup["candidates"].as_array().unwrap().iter().flat_map(Value::as_str).collect();
        assert_eq!(names, expected, "{lookup}");
        assert_eq!(u64::from(candidates.skipped()), lookup["skipped"].as_u64().unwrap());
        assert_eq!(ring.owner(oid).name, lookup["owner"].as_str().unwrap(), "{lookup}");
    }
}

#[test]
fn oids_are_those_of_python() {
    let vectors = golden_json("oid.json")["vectors"].as_array().unwrap().clone();
    assert!(!vectors.is_empty());
    for vector in &vectors {
        assert_eq!(format!("{:016x}", oid_of(vector).0), vector["oid"].as_str().unwrap());
    }
}

#[test]
fn rendezvous_hosts_are_those_of_python() {
    let golden = golden_json("rendezvous.json");
    for vector in golden["disks"].as_array().unwrap() {
        let disk = vector["disk"].as_str().unwrap().parse().unwrap();
        let oid = acstor_types::Oid::rendezvous(&disk);
        assert_eq!(format!("{:016x}", oid.0), vector["oid"].as_str().unwrap());
    }
    for vector in golden["hosts"].as_array().unwrap() {
        let number = acstor_types::Oid::host_number(vector["host"].as_str().unwrap());
        assert_eq!(format!("{number:016x}"), vector["number"].as_str().unwrap());
    }
}
