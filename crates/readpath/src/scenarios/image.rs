//! Disks with known content.

use acstor_types::{
    ChunkLocation, ChunkSize, Digest, DiskId, Manifest, ManifestBuilder, PACK_DATA_OFFSET, PackId,
};

use super::test_origin::TestOrigin;

pub(super) const CHUNK: usize = 4096;

/// A disk: its manifest and all its bytes.
pub(super) struct Image {
    pub(super) manifest: Manifest,
    pub(super) content: Vec<u8>,
}

/// Content of an image's chunks.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    pub(super) number: u8,
    pub(super) chunks: usize,
    /// Each chunk whose index is a multiple of this is zero; 0: none.
    pub(super) zero_every: usize,
    pub(super) chunks_per_pack: usize,
    /// Bytes that the last chunk lacks.
    pub(super) cut: usize,
}

impl Shape {
    pub(super) fn plain(number: u8, chunks: usize) -> Shape {
        Shape { number, chunks, zero_every: 0, chunks_per_pack: 64, cut: 0 }
    }
}

/// Content of a chunk: different for each (image, index).
fn chunk(number: u8, index: usize) -> Vec<u8> {
    let mut state =
        (u64::from(number) << 32 | index as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(CHUNK);
    while bytes.len() < CHUNK {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes
}

impl Image {
    /// Makes an image and puts its packs into the origin.
    pub(super) fn register(shape: Shape, origin: &TestOrigin) -> Image {
        let size = shape.chunks * CHUNK - shape.cut;
        let id = DiskId::from_bytes([shape.number; 16]);
        let chunk_size = ChunkSize::new(CHUNK as u32).unwrap();
        let mut builder = ManifestBuilder::new(id, chunk_size, size as u64);
        let (mut content, mut stored) = (Vec::new(), 0);
        for index in 0..shape.chunks {
            if shape.zero_every > 0 && index % shape.zero_every == 0 {
                content.resize(content.len() + CHUNK, 0);
                builder.push_zero();
                continue;
            }
            let mut bytes = chunk(shape.number, index);
            if index == shape.chunks - 1 {
                bytes[CHUNK - shape.cut..].fill(0);
            }
            let pack = Image::pack(shape.number, (stored / shape.chunks_per_pack) as u8);
            let position = stored % shape.chunks_per_pack;
            let offset = PACK_DATA_OFFSET as usize + position * CHUNK;
            origin.put(pack, offset, &bytes);
            let location = ChunkLocation { pack, offset: offset as u32 };
            builder.push_chunk(&Digest::of(&bytes), location);
            content.extend_from_slice(&bytes);
            stored += 1;
        }
        content.truncate(size);
        Image { manifest: builder.finish().unwrap(), content }
    }

    /// The pack that a plain image of this number has its `position`-th chunks in.
    pub(super) fn pack(number: u8, position: u8) -> PackId {
        PackId(Digest::of(&[number, position]))
    }

    /// The same disk with what was in one pack in another.
    pub(super) fn moved(&self, from: PackId, to: PackId) -> Image {
        self.rebuilt(self.id(), |pack| if pack == from { to } else { pack })
    }

    /// Another disk with the same chunks.
    pub(super) fn twin(&self, number: u8) -> Image {
        self.rebuilt(DiskId::from_bytes([number; 16]), |pack| pack)
    }

    fn rebuilt(&self, id: DiskId, place: impl Fn(PackId) -> PackId) -> Image {
        let manifest = &self.manifest;
        let mut builder = ManifestBuilder::new(id, manifest.chunk_size(), manifest.size_bytes());
        for index in 0..manifest.chunk_count() {
            match manifest.entry(index).unwrap() {
                acstor_types::Entry::Zero => builder.push_zero(),
                acstor_types::Entry::Chunk { digest, location } => {
                    let location = ChunkLocation { pack: place(location.pack), ..location };
                    builder.push_chunk(&digest, location);
                }
            }
        }
        Image { manifest: builder.finish().unwrap(), content: self.content.clone() }
    }

    pub(super) fn id(&self) -> DiskId {
        self.manifest.disk_id()
    }

    pub(super) fn digest(&self, index: usize) -> Digest {
        match self.manifest.entry(index as u64).unwrap() {
            acstor_types::Entry::Chunk { digest, .. } => digest,
            acstor_types::Entry::Zero => panic!("chunk {index} is zero"),
        }
    }
}
