//! Chunks that are taken from a host for good, and what a host tells of those that it has.

use acstor_types::Digest;
use bytes::Bytes;

use super::image::{Image, Shape};
use super::world::{World, config};
use crate::{Keep, ReadPathConfig};

const CHUNKS: usize = 64;

fn world() -> (World, Image) {
    let world = World::new(&["a"], &ReadPathConfig { keep: Keep::Always, ..config() });
    let image = world.image(Shape::plain(1, CHUNKS));
    (world, image)
}

fn held(world: &World, image: &Image) -> Vec<usize> {
    let held = world.host("a").path.held_chunks(&image.id()).unwrap();
    assert_eq!(held.chunk_count, CHUNKS as u64);
    (0..CHUNKS).filter(|chunk| held.bitmap[chunk / 8] >> (chunk % 8) & 1 == 1).collect()
}

#[tokio::test(start_paused = true)]
async fn test_discarded_chunks_are_gone_from_disk_and_memory() {
    let (world, image) = world();
    let host = world.host("a");
    for chunk in [3, 5, 7] {
        host.read_chunk(&image, chunk).await.unwrap();
    }
    let digests: Vec<Digest> = [3, 5, 60].map(|chunk| image.digest(chunk)).to_vec();
    assert_eq!(host.path.count_here(&digests), 2, "whether or not they are written yet");
    world.flush();
    assert_eq!(held(&world, &image), [3, 5, 7]);
    let discarded = host.path.discard(&digests).unwrap();
    assert_eq!((discarded.dropped, discarded.busy), (2, 0));
    assert_eq!(host.path.count_here(&digests), 0, "the recent ones are gone, too");
    assert_eq!(held(&world, &image), [7]);
}

#[tokio::test(start_paused = true)]
async fn test_discarded_chunks_that_were_read_ahead_are_gone() {
    let (world, image) = world();
    let host = world.host("a");
    let digests = [image.digest(3)];
    host.path.sources.chunks.ahead.insert(digests[0], Bytes::from_static(b"its content"));
    assert_eq!(host.path.count_here(&digests), 1);
    assert_eq!(host.path.discard(&digests).unwrap().busy, 0);
    assert_eq!(host.path.count_here(&digests), 0);
}

#[tokio::test(start_paused = true)]
async fn test_disk_that_is_attached_may_have_a_discarded_chunk_back() {
    let (world, image) = world();
    let host = world.host("a");
    host.read_chunk(&image, 3).await.unwrap();
    world.flush();
    let digests = [image.digest(3)];
    assert_eq!(host.path.discard(&digests).unwrap().dropped, 1);
    host.read_chunk(&image, 3).await.unwrap();
    assert_eq!(host.path.count_here(&digests), 1);
}

#[tokio::test(start_paused = true)]
async fn test_disk_that_refuses_to_overwrite_is_told() {
    let (world, image) = world();
    let host = world.host("a");
    host.store.fails_writes.store(true, std::sync::atomic::Ordering::Relaxed);
    assert!(host.path.discard(&[image.digest(0)]).is_err());
}
