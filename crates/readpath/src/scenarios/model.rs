//! Four hosts under random reads, remaps and faults, against the only model there is: the bytes.

use std::collections::HashSet;
use std::time::Duration;

use acstor_peer::PeerStatus;
use proptest::prelude::*;
use tokio::runtime::Builder;

use super::image::{CHUNK, Image, Shape};
use super::network::PeerFaultMode;
use super::test_origin::OriginFaultMode;
use super::world::{World, config};
use crate::{Keep, PlacementRule, ReadPathConfig};

const HOSTS: [&str; 4] = ["a", "b", "c", "d"];
const CHUNKS: usize = 192;

#[derive(Clone, Debug)]
enum Step {
    /// Reads at the same moment: (host, offset, length).
    Reads(Vec<(usize, u64, usize)>),
    Peer(usize, PeerFaultMode),
    Origin(OriginFaultMode),
    OriginDelay(u64),
    Remap([u32; 4]),
    Drain(usize, bool),
    LoseStore(usize),
    Wait(u64),
}

fn reads() -> impl Strategy<Value = Step> {
    let read = (0..4usize, 0..(CHUNKS * CHUNK) as u64, 1..24 * CHUNK);
    prop::collection::vec(read, 1..12).prop_map(Step::Reads)
}

fn peer_fault_mode() -> impl Strategy<Value = PeerFaultMode> {
    prop_oneof![
        3 => Just(PeerFaultMode::Well),
        1 => Just(PeerFaultMode::Dead),
        1 => Just(PeerFaultMode::Stalled),
        1 => Just(PeerFaultMode::Gone),
        1 => Just(PeerFaultMode::Lies),
        1 => Just(PeerFaultMode::ShortAnswers),
        1 => Just(PeerFaultMode::Refuses(PeerStatus::Overloaded)),
        1 => Just(PeerFaultMode::Refuses(PeerStatus::Unavailable)),
        1 => Just(PeerFaultMode::Refuses(PeerStatus::Internal)),
        1 => (1u64..300).prop_map(|ms| PeerFaultMode::Slow(Duration::from_millis(ms))),
    ]
}

fn origin_fault_mode() -> impl Strategy<Value = OriginFaultMode> {
    prop_oneof![
        3 => Just(OriginFaultMode::Well),
        1 => Just(OriginFaultMode::Down),
        1 => Just(OriginFaultMode::Flaky),
        1 => Just(OriginFaultMode::Hangs),
        1 => Just(OriginFaultMode::Overloaded),
    ]
}

fn weights() -> impl Strategy<Value = Step> {
    prop::array::uniform4(0u32..5)
        .prop_filter("somebody owns something", |weights| weights.iter().any(|w| *w > 0))
        .prop_map(Step::Remap)
}

fn faulty_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => reads(),
        3 => (0..4usize, peer_fault_mode()).prop_map(|(host, fault_mode)| Step::Peer(host, fault_mode)),
        2 => origin_fault_mode().prop_map(Step::Origin),
        1 => (0u64..200).prop_map(Step::OriginDelay),
        1 => weights(),
        1 => (0..4usize, any::<bool>()).prop_map(|(host, on)| Step::Drain(host, on)),
        1 => (0..4usize).prop_map(Step::LoseStore),
        1 => (1u64..5000).prop_map(Step::Wait),
    ]
}

fn settings() -> impl Strategy<Value = ReadPathConfig> {
    let keep = prop_oneof![Just(Keep::Never), Just(Keep::SecondTouch), Just(Keep::Always)];
    let placement = prop_oneof![
        (1u64..40).prop_map(|span_chunks| PlacementRule::Digest { span_chunks }),
        (1u64..40).prop_map(|span_chunks| PlacementRule::Oid { span_chunks }),
    ];
    (keep, placement, 1..3usize, any::<bool>()).prop_map(|(keep, placement, candidates, hedge)| {
        ReadPathConfig {
            keep,
            placement,
            candidates_max: candidates,
            hedge_enabled: hedge,
            read_deadline: Duration::from_secs(5),
            origin_deadline: Duration::from_secs(2),
            peer_deadline: Duration::from_secs(1),
            ..config()
        }
    })
}

struct Model {
    world: World,
    image: Image,
    generation: u64,
    read: HashSet<u64>,
    failures: usize,
}

impl Model {
    fn new(config: &ReadPathConfig) -> Model {
        let world = World::new(&HOSTS, config);
        let shape =
            Shape { zero_every: 7, chunks_per_pack: 50, cut: 99, ..Shape::plain(1, CHUNKS) };
        let image = world.image(shape);
        Model { world, image, generation: 1, read: HashSet::new(), failures: 0 }
    }

    async fn step(&mut self, step: &Step) {
        match step {
            Step::Reads(reads) => self.reads(reads).await,
            Step::Peer(host, fault_mode) => self.world.network.set(HOSTS[*host], *fault_mode),
            Step::Origin(fault_mode) => self.world.origin.set(*fault_mode),
            Step::OriginDelay(ms) => self.world.origin.set_delay(Duration::from_millis(*ms)),
            Step::Remap(weights) => {
                self.generation += 1;
                let weights: Vec<(&str, u32)> = HOSTS.into_iter().zip(*weights).collect();
                self.world.set_ring(self.generation, &weights);
            }
            Step::Drain(host, on) => self.world.hosts[*host].path.set_drain(*on),
            Step::LoseStore(host) => self.world.hosts[*host].store.clear(),
            Step::Wait(ms) => tokio::time::sleep(Duration::from_millis(*ms)).await,
        }
    }

    async fn reads(&mut self, reads: &[(usize, u64, usize)]) {
        let running: Vec<_> = reads
            .iter()
            .map(|(host, offset, len)| {
                let view = self.world.hosts[*host].view(&self.image);
                tokio::spawn(view.read(*offset, *len))
            })
            .collect();
        for ((_, offset, len), read) in reads.iter().zip(running) {
            let end = (offset + *len as u64).min(self.image.content.len() as u64);
            if *offset < end {
                self.read.extend(offset / CHUNK as u64..=(end - 1) / CHUNK as u64);
            }
            match read.await.unwrap() {
                // Panics on a wrong byte.
                Ok(segments) => super::world::check(&self.image, *offset, *len, &segments),
                Err(_) => self.failures += 1,
            }
        }
    }

    /// Bytes of the distinct chunks with content that were read.
    fn union_bytes(&self) -> usize {
        let has_content = |index: &&u64| !index.is_multiple_of(7);
        self.read.iter().filter(has_content).count() * CHUNK
    }

    /// Ends all faults; every read must then succeed.
    async fn heal(&mut self) {
        self.world.origin.set(OriginFaultMode::Well);
        self.world.origin.set_delay(Duration::ZERO);
        for host in HOSTS {
            self.world.network.set(host, PeerFaultMode::Well);
            self.world.host(host).path.set_drain(false);
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
        let before = self.failures;
        let everything: Vec<_> = (0..4).map(|host| (host, 0, CHUNKS * CHUNK)).collect();
        self.reads(&everything).await;
        assert_eq!(self.failures, before, "a healthy cluster serves every read");
    }
}

fn run(config: &ReadPathConfig, steps: &[Step], heal: bool) -> Model {
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    runtime.block_on(async {
        let mut model = Model::new(config);
        for step in steps {
            model.step(step).await;
        }
        if heal {
            model.heal().await;
        }
        model
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn proptest_faults_never_give_a_wrong_byte_and_all_is_well_afterwards(
        config in settings(),
        steps in prop::collection::vec(faulty_step(), 1..30),
    ) {
        run(&config, &steps, true);
    }

    #[test]
    fn proptest_without_faults_no_chunk_leaves_the_origin_twice(
        config in settings(),
        steps in prop::collection::vec(prop_oneof![6 => reads(), 1 => (0u64..20).prop_map(Step::OriginDelay)], 1..30),
    ) {
        // Hedges trade bytes for time and are bounded by their own test.
        let config = ReadPathConfig { hedge_enabled: false, ..config };
        let model = run(&config, &steps, false);
        prop_assert_eq!(model.failures, 0);
        prop_assert!(model.world.origin.bytes() <= model.union_bytes(), "{} of {}", model.world.origin.bytes(), model.union_bytes());
    }
}
