//! A data plane without Python: its life, and a volume that comes, is handed over and comes back.

#![expect(clippy::unwrap_used, reason = "a test ends at the first surprise")]

mod host_settings;

use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use acstor_host::{FreeRates, Host, HostError, Settings, VolumeSpec, manifest_name};
use acstor_manifest::{Base, Builder, Disk, Pack};
use acstor_overlay::{OriginSink, SinkError};
use acstor_readpath::encode_order;
use acstor_types::{
    ChunkSize, Codec, Digest, DiskId, ErrorKind, ManifestBuilder, PackId, StoredChunk,
};
use bytes::Bytes;
use parking_lot::Mutex;
use serde_json::json;

const VOLUME_BYTES: u64 = 1 << 20;

/// An origin's log objects in memory.
#[derive(Default)]
struct MemorySink(Mutex<BTreeMap<String, Bytes>>);

impl OriginSink for MemorySink {
    fn put_if_absent(&self, key: &str, parts: &[Bytes]) -> Result<bool, SinkError> {
        let mut objects = self.0.lock();
        let is_new = !objects.contains_key(key);
        if is_new {
            objects.insert(key.to_owned(), Bytes::from(parts.concat()));
        }
        Ok(is_new)
    }

    fn get(&self, key: &str, _size_max: u64) -> Result<Option<Bytes>, SinkError> {
        Ok(self.0.lock().get(key).cloned())
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>, SinkError> {
        let objects = self.0.lock();
        Ok(objects.keys().filter(|key| key.starts_with(prefix)).cloned().collect())
    }
}

fn settings(directory: &Path) -> Settings {
    host_settings::small("host-1", directory)
}

fn spec(directory: &Path, epoch: u32, next: u64) -> VolumeSpec {
    spec_over(directory, epoch, next, None)
}

fn spec_over(
    directory: &Path,
    epoch: u32,
    next: u64,
    manifest: Option<(&Path, Digest)>,
) -> VolumeSpec {
    serde_json::from_value(json!({
        "directory": directory.join(format!("log-{epoch}")),
        "epoch": epoch,
        "next": next,
        "size_bytes": VOLUME_BYTES,
        "manifest_path": manifest.map(|(path, _)| path),
        "manifest": manifest.map(|(_, name)| name.to_string()),
        "logs": [],
        "durability": {"default": "write-back", "period_s": 60},
        "iops": 500,
        "bytes_per_s": 0,
        "reserve_bytes": 0,
        "adopts": null,
    }))
    .unwrap()
}

fn state(host: &Host, volume: DiskId) -> String {
    host.volume_status(volume).unwrap()["state"].as_str().unwrap().to_owned()
}

#[test]
fn test_volume_comes_is_handed_over_and_comes_back() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::open(settings(directory.path()), None).unwrap();
    let (volume, sink) = (DiskId::from_bytes([7; 16]), Arc::new(MemorySink::default()));
    let missing = host.volume_status(volume).unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::NotFound);

    host.volume_follow(volume, VOLUME_BYTES).unwrap();
    assert_eq!(state(&host, volume), "standby");
    assert_eq!(host.volume_push(volume).unwrap_err().kind(), ErrorKind::Fenced);

    host.volume_open(volume, &spec(directory.path(), 1, 1), sink.clone()).unwrap();
    assert_eq!(state(&host, volume), "open");
    assert_eq!(host.volume_status(volume).unwrap()["iops"], 500);
    let again = host.volume_open(volume, &spec(directory.path(), 1, 1), sink.clone());
    assert!(matches!(again, Err(HostError::VolumeOpen(_))));

    let point = host.volume_release(volume).unwrap();
    assert_eq!(state(&host, volume), "standby");
    let next = point.sequence + 1;
    host.volume_open(volume, &spec(directory.path(), 2, next), sink).unwrap();
    assert_eq!(host.volume_status(volume).unwrap()["epoch"], 2);

    host.volume_fence(volume, "a test says so").unwrap();
    assert_eq!(state(&host, volume), "fenced");
    host.volume_close(volume);
    assert!(host.volume_list().is_empty());
}

/// A disk of the size of the volumes here.
fn disk(id: u8, salt: u8, base: Option<Base>) -> Disk {
    Disk {
        disk_id: DiskId::from_bytes([id; 16]),
        size_bytes: VOLUME_BYTES,
        chunk_size: ChunkSize::DEFAULT,
        salt: [salt; 16],
        base,
    }
}

/// A manifest of format 2 with one chunk, the first, whose entry is on the last page.
fn paged_manifest(salt: u8) -> (Digest, Vec<u8>) {
    paged_manifest_of(disk(9, salt, None))
}

fn paged_manifest_of(disk: Disk) -> (Digest, Vec<u8>) {
    let id = PackId(Digest::of(b"pack"));
    let pack = Pack { id, stored_bytes: 100, class: 1 };
    let chunk = StoredChunk {
        digest: Digest::of(b"chunk"),
        offset: 4096,
        stored_len: 100,
        codec: Codec::Lz4,
        is_incompressible: false,
        crc: 0,
    };
    let mut builder = Builder::new(disk, Cursor::new(Vec::new())).unwrap();
    let pack = builder.add_pack(pack).unwrap();
    builder.push(0, pack, chunk).unwrap();
    let mut built = builder.finish().unwrap();
    (built.header().name(), built.to_bytes().unwrap())
}

fn whole_manifest(salt: u8) -> (Digest, Vec<u8>) {
    let disk = DiskId::from_bytes([9; 16]);
    let mut builder = ManifestBuilder::new(disk, ChunkSize::DEFAULT, VOLUME_BYTES);
    builder.set_salt(salt.into());
    (0..ChunkSize::DEFAULT.count_for(VOLUME_BYTES)).for_each(|_| builder.push_zero());
    let manifest = builder.finish().unwrap();
    (manifest.digest(), manifest.as_bytes().to_vec())
}

#[test]
fn test_volume_lies_over_the_manifest_of_its_record_only() {
    for (make, refused_at) in [(paged_manifest as fn(u8) -> _, 200), (whole_manifest, 100)] {
        let directory = tempfile::tempdir().unwrap();
        let host = Host::open(settings(directory.path()), None).unwrap();
        let (volume, sink) = (DiskId::from_bytes([7; 16]), Arc::new(MemorySink::default()));
        let path = directory.path().join("manifest");
        let (name, content) = make(1);
        std::fs::write(&path, &content).unwrap();
        assert_eq!(manifest_name(&path).unwrap(), name);
        let over = |epoch| spec_over(directory.path(), epoch, 1, Some((&path, name)));
        host.volume_open(volume, &over(1), sink.clone()).unwrap();
        assert_eq!(host.volume_status(volume).unwrap()["manifest"], name.to_string());
        host.volume_set_base(volume, &path, name).unwrap();

        let flipped = |position: usize| {
            let mut damaged = content.clone();
            damaged[position] ^= 1;
            damaged
        };
        // Of another version, of another name, cut, and of another disk.
        let others = [flipped(8), flipped(refused_at), content[..100].to_vec(), make(2).1];
        for (number, content) in (2..).zip(others) {
            let path = directory.path().join(format!("manifest-{number}"));
            std::fs::write(&path, content).unwrap();
            let refused = host.volume_set_base(volume, &path, name).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Corrupt, "{refused}");
            assert_eq!(host.volume_status(volume).unwrap()["manifest"], name.to_string());
            let other = DiskId::from_bytes([number; 16]);
            let spec = spec_over(directory.path(), 2, 1, Some((&path, name)));
            let refused = host.volume_open(other, &spec, sink.clone()).unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::Corrupt, "{refused}");
            assert_eq!(host.volume_list(), [volume.to_string()]);
        }
    }
}

#[test]
fn test_damaged_page_below_a_volume_is_told_until_the_manifest_is_put_there_again() {
    let directory = tempfile::tempdir().unwrap();
    // An origin that does not have the manifest any more.
    std::fs::create_dir_all(directory.path().join("origin/manifests")).unwrap();
    let host = Host::open(settings(directory.path()), None).unwrap();
    let (volume, sink) = (DiskId::from_bytes([7; 16]), Arc::new(MemorySink::default()));
    let (name, content) = paged_manifest(1);
    let [path, whole] = ["damaged", "whole"].map(|name| directory.path().join(name));
    std::fs::write(&whole, &content).unwrap();
    let mut damaged = content;
    *damaged.last_mut().unwrap() ^= 1;
    std::fs::write(&path, damaged).unwrap();
    let spec = spec_over(directory.path(), 1, 1, Some((&path, name)));
    host.volume_open(volume, &spec, sink).unwrap();
    let is_damaged = || host.volume_status(volume).unwrap()["is_manifest_damaged"].clone();
    assert_eq!(is_damaged(), false);
    assert!(host.volume_read_head(volume).is_err());
    assert_eq!(is_damaged(), true);
    host.volume_set_base(volume, &path, name).unwrap();
    assert!(host.volume_read_head(volume).is_err());
    assert_eq!(is_damaged(), true, "the file is no better");
    host.volume_set_base(volume, &whole, name).unwrap();
    assert_eq!(is_damaged(), false);
}

#[test]
fn test_stopped_data_plane_is_stopped_for_good() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::open(settings(directory.path()), None).unwrap();
    assert_eq!(host.status()["state"], "created");
    assert!(host.metrics_text().unwrap().contains("acstor_"));
    host.stop(Duration::from_secs(1));
    host.stop(Duration::from_secs(1));
    assert_eq!(host.status()["state"], "stopped");
}

#[test]
fn test_setting_that_this_build_does_not_know_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let unknown = Settings { keep: "sometimes".into(), ..settings(directory.path()) };
    let error = Host::open(unknown, None).map(drop).unwrap_err();
    assert!(matches!(error, HostError::Setting { name: "keep", .. }), "{error}");
    assert!(!directory.path().join("store").exists(), "nothing was made");
}

/// Waits until the metrics say so.
fn wait_for(host: &Host, what: &str, is_there: impl Fn(&str) -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !is_there(&host.metrics_text().unwrap()) {
        assert!(Instant::now() < until, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn test_free_rates_hold_until_they_are_told_anew_or_their_time_is_over() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::open(settings(directory.path()), None).unwrap();
    let rates = |inwards, outwards| FreeRates { inwards, outwards };
    let shown = |direction: &str, rate: u64| {
        format!("acstor_link_free_bytes_per_second{{direction=\"{direction}\"}} {rate}\n")
    };
    host.set_free_rates(rates(Some(0), Some(125_000_000)), Duration::from_secs(3600)).unwrap();
    let text = host.metrics_text().unwrap();
    assert!(text.contains(&shown("in", 0)) && text.contains(&shown("out", 125_000_000)), "{text}");
    host.set_free_rates(rates(Some(7), None), Duration::from_millis(1)).unwrap();
    wait_for(&host, "the rates are forgotten", |text| {
        !text.contains("acstor_link_free_bytes_per_second{")
    });
    for valid in [Duration::ZERO, Duration::from_secs(3601)] {
        let refused = host.set_free_rates(rates(Some(1), Some(1)), valid).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
    }
    host.stop(Duration::ZERO);
    let stopped = host.set_free_rates(rates(Some(1), Some(1)), Duration::from_secs(1));
    assert!(matches!(stopped, Err(HostError::State("stopped"))));
}

/// Waits until boots of a disk are expected to read its first chunk.
fn wait_for_boots(host: &Host, disk: u8) {
    let until = Instant::now() + Duration::from_secs(30);
    let id = DiskId::from_bytes([disk; 16]);
    while host.read_path().boot_profile(&id).unwrap().is_none() {
        assert!(Instant::now() < until, "disk {disk} has inherited nothing");
        std::thread::yield_now();
    }
}

#[test]
fn test_new_base_of_a_volume_inherits_the_boots_of_the_former_one() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::open(settings(directory.path()), None).unwrap();
    let (volume, sink) = (DiskId::from_bytes([7; 16]), Arc::new(MemorySink::default()));
    let [former, folded] = ["former", "folded"].map(|name| directory.path().join(name));
    let (name, content) = paged_manifest(1);
    std::fs::write(&former, content).unwrap();
    let spec = spec_over(directory.path(), 1, 1, Some((&former, name)));
    host.volume_open(volume, &spec, sink).unwrap();
    let id = DiskId::from_bytes([9; 16]);
    host.read_path().set_boot_profile(&id, &encode_order(&[0])).unwrap();
    let (name, content) = paged_manifest_of(disk(10, 1, None));
    std::fs::write(&folded, content).unwrap();
    host.volume_set_base(volume, &folded, name).unwrap();
    wait_for_boots(&host, 10);
    let until = Instant::now() + Duration::from_secs(30);
    while host.read_path().boot_profile(&id).is_ok() {
        assert!(Instant::now() < until, "the former base is given back");
        std::thread::yield_now();
    }
}

#[test]
fn test_delta_of_an_image_inherits_its_boots_when_it_is_opened_and_when_they_are_learnt() {
    let directory = tempfile::tempdir().unwrap();
    let host = Host::open(settings(directory.path()), None).unwrap();
    let sink = Arc::new(MemorySink::default());
    let (image, content) = paged_manifest(1);
    let path = directory.path().join(format!("{image}.manifest"));
    std::fs::write(&path, content).unwrap();
    host.attach_image(&path, false, Some(image)).unwrap();
    let orders = directory.path().join("orders");
    std::fs::write(&orders, encode_order(&[0])).unwrap();
    let open = |id: u8| {
        let mut delta = Builder::new(
            disk(id, id, Some(Base { name: image, depth: 1 })),
            Cursor::new(Vec::new()),
        )
        .unwrap()
        .finish()
        .unwrap();
        let (name, content) = (delta.header().name(), delta.to_bytes().unwrap());
        let path = directory.path().join(format!("{name}.manifest"));
        std::fs::write(&path, content).unwrap();
        let spec = spec_over(directory.path(), id.into(), 1, Some((&path, name)));
        host.volume_open(DiskId::from_bytes([id + 100; 16]), &spec, sink.clone()).unwrap();
    };
    open(11);
    assert!(host.read_path().boot_profile(&DiskId::from_bytes([11; 16])).unwrap().is_none());
    host.set_boot_profile(DiskId::from_bytes([9; 16]), &orders).unwrap();
    wait_for_boots(&host, 11);
    open(12);
    wait_for_boots(&host, 12);
}
