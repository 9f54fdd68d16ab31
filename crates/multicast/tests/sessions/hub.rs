//! Sessions from the first message to the last chunk: hosts that join, listen, and leave.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use acstor_multicast::limits::{DEAF_PAUSE, EPOCH, JOIN_WINDOW, MESSAGE_LEN_MAX, SESSIONS_MAX};
use acstor_multicast::shell::{
    AnswerFuture, ChunkSource, Datagrams, Disks, Finish, GroupConfig, GroupError, HeardChunk, Hub,
    HubConfig, ListenRequest, LoadFuture, Network, OpenFuture, Refusal, SenderLink, Totals, listen,
};
use acstor_multicast::wire::Message;
use acstor_types::{ChunkSize, Digest, DiskId};
use tokio::runtime::Handle;
use tokio::sync::mpsc;

use crate::memory_group::{Ear, Faults, MemoryGroup};
use crate::{CHUNK, CLEAN, content};

const CHUNKS: u64 = 30;

/// Both ends of a group in memory.
enum Socket {
    Group(MemoryGroup),
    Ear(Ear),
}

impl Datagrams for Socket {
    async fn send(&self, datagram: &[u8]) -> std::io::Result<()> {
        match self {
            Socket::Group(group) => group.send(datagram).await,
            Socket::Ear(ear) => ear.send(datagram).await,
        }
    }

    async fn receive(&self, buffer: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Socket::Group(group) => group.receive(buffer).await,
            Socket::Ear(ear) => ear.receive(buffer).await,
        }
    }
}

#[derive(Clone)]
struct MemoryNetwork {
    group: MemoryGroup,
    faults: Faults,
}

impl Network for MemoryNetwork {
    type Socket = Socket;

    fn sender(&self, _config: &GroupConfig) -> Result<Socket, GroupError> {
        Ok(Socket::Group(self.group.clone()))
    }

    fn receiver(&self, _config: &GroupConfig) -> Result<Socket, GroupError> {
        Ok(Socket::Ear(self.group.listen(self.faults, 7)))
    }
}

struct OneDisk;

impl ChunkSource for OneDisk {
    fn load(&self, chunks: Vec<u64>) -> LoadFuture {
        Box::pin(async move { chunks.into_iter().map(|index| (index, content(index))).collect() })
    }

    fn reads_wait(&self) -> bool {
        false
    }
}

impl Disks for OneDisk {
    type Source = OneDisk;

    fn has(&self, disk: &DiskId, _what: u8) -> bool {
        disk.as_bytes()[0] < 100
    }

    fn open(&self, _disk: DiskId, _what: u8) -> OpenFuture<OneDisk> {
        Box::pin(async { Some(((0..CHUNKS).collect(), OneDisk)) })
    }
}

type TestHub = Hub<OneDisk, MemoryNetwork>;

/// A host's way to the hub, until the hub's host is gone.
struct Link {
    hub: Arc<TestHub>,
    host: IpAddr,
    is_gone: Arc<AtomicBool>,
}

impl SenderLink for Link {
    fn ask(&self, message: [u8; MESSAGE_LEN_MAX]) -> AnswerFuture {
        let is_gone = self.is_gone.load(Ordering::Relaxed);
        let answer = self.hub.answer(self.host, &message).ok().filter(|_| !is_gone);
        Box::pin(async move { answer })
    }

    fn link_used(&self) -> Option<f64> {
        Some(0.5)
    }
}

fn group_config() -> GroupConfig {
    let group = "239.255.70.15:7070".parse().unwrap();
    GroupConfig { group, interface: Ipv4Addr::LOCALHOST, interface_index: 0 }
}

fn chunk_size() -> ChunkSize {
    ChunkSize::new(CHUNK).unwrap()
}

fn hub(faults: Faults) -> (Arc<TestHub>, MemoryNetwork, Arc<Totals>) {
    let network = MemoryNetwork { group: MemoryGroup::default(), faults };
    let config = HubConfig {
        group: group_config(),
        chunk_size: chunk_size(),
        link_bytes_per_s: 125_000_000,
        rate_max: u64::MAX,
    };
    let totals = Arc::new(Totals::default());
    let hub = Hub::new(config, (OneDisk, network.clone()), Handle::current(), totals.clone());
    (hub, network, totals)
}

fn join(disk: u8) -> [u8; MESSAGE_LEN_MAX] {
    let disk = DiskId::from_bytes([disk; 16]);
    Message::Join { disk, what: 1, chunk_size: chunk_size() }.encode_filled()
}

fn host(number: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, number).into()
}

/// Has a host listen; returns why it stopped, and the chunks that it heard.
async fn listening(
    (hub, network): (Arc<TestHub>, MemoryNetwork),
    number: u8,
    is_gone: Arc<AtomicBool>,
) -> (Option<Finish>, Vec<HeardChunk>) {
    let missing = (0..CHUNKS).map(|index| (index, Digest::of(&content(index)))).collect();
    let request = ListenRequest {
        disk: DiskId::from_bytes([1; 16]),
        what: 1,
        chunk_size: chunk_size(),
        missing,
        group: group_config(),
    };
    let (chunks, mut heard) = mpsc::channel(CHUNKS as usize);
    let link = Arc::new(Link { hub, host: host(number), is_gone });
    let totals = Totals::default();
    let finish = listen(link, request, &network, (chunks, &totals)).await;
    let mut got = Vec::new();
    while let Some(chunk) = heard.recv().await {
        got.push(chunk);
    }
    let names: Vec<_> = totals.finishes().iter().filter(|(_, count)| *count > 0).copied().collect();
    assert_eq!(names, finish.iter().map(|finish| (finish.as_str(), 1)).collect::<Vec<_>>());
    (finish, got)
}

#[tokio::test(start_paused = true)]
async fn test_hub_hosts_that_join_hear_the_whole_disk() {
    let (hub, network, totals) = hub(CLEAN);
    let hosts: Vec<_> = (1..=3)
        .map(|number| {
            tokio::spawn(listening((hub.clone(), network.clone()), number, Arc::default()))
        })
        .collect();
    for each in hosts {
        let (finish, heard) = each.await.unwrap();
        assert_eq!((finish, heard.len()), (Some(Finish::Whole), 30));
        assert!(heard.iter().all(|(index, _, bytes)| *bytes == content(*index)));
    }
    while hub.sessions() > 0 {
        tokio::time::sleep(EPOCH).await;
    }
    let counters = totals.counters();
    assert!(counters.contains(&("sent_chunks", 30)) || totals.ends().contains(&("deserted", 1)));
}

#[tokio::test(start_paused = true)]
async fn test_hub_a_sender_that_dies_is_given_up_and_what_came_is_kept() {
    let (hub, network, _) = hub(Faults { deaf_after: Some(400), ..CLEAN });
    let is_gone = Arc::new(AtomicBool::new(false));
    let hosts: Vec<_> = (1..=3)
        .map(|number| {
            tokio::spawn(listening((hub.clone(), network.clone()), number, is_gone.clone()))
        })
        .collect();
    tokio::time::sleep(JOIN_WINDOW).await;
    is_gone.store(true, Ordering::Relaxed);
    for each in hosts {
        let (finish, heard) = each.await.unwrap();
        assert_eq!(finish, Some(Finish::Silent));
        assert!((1..30).contains(&heard.len()), "{}", heard.len());
    }
}

#[tokio::test(start_paused = true)]
async fn test_hub_refuses_what_it_does_not_have_and_does_not_know() {
    let (hub, ..) = hub(CLEAN);
    assert_eq!(hub.answer(host(1), &join(200)).unwrap_err(), Refusal::NotFound);
    assert_eq!(hub.answer(host(1), &[0; MESSAGE_LEN_MAX]).unwrap_err(), Refusal::Invalid);
    let small = ChunkSize::new(4_096).unwrap();
    let disk = DiskId::from_bytes([1; 16]);
    let other = Message::Join { disk, what: 1, chunk_size: small }.encode_filled();
    assert_eq!(hub.answer(host(1), &other).unwrap_err(), Refusal::Invalid);
    let leave = Message::Leave { session: 1, member: 0 }.encode_filled();
    assert_eq!(hub.answer(host(1), &leave).unwrap_err(), Refusal::NotFound);
    assert_eq!(hub.sessions(), 0);
}

#[tokio::test(start_paused = true)]
async fn test_hub_hosts_of_one_preload_share_a_session_and_sessions_are_bounded() {
    let (hub, ..) = hub(CLEAN);
    let session = |number, disk| -> Result<(u64, u32), Refusal> {
        let answer = hub.answer(host(number), &join(disk))?;
        match Message::decode_filled(&answer) {
            Ok(Message::Grant(grant)) => Ok((grant.session, grant.member)),
            other => panic!("{other:?}"),
        }
    };
    let (first, second) = (session(1, 1).unwrap(), session(2, 1).unwrap());
    assert_eq!((first.0, first.1 + 1), (second.0, second.1));
    for disk in 2..=SESSIONS_MAX as u8 {
        assert_ne!(session(1, disk).unwrap().0, first.0);
    }
    assert_eq!(session(1, 50).unwrap_err(), Refusal::Overloaded);
    hub.stop();
}

#[tokio::test(start_paused = true)]
async fn test_hub_a_network_without_multicast_is_left_alone_for_a_while() {
    let (hub, network, _) = hub(Faults { deaf_after: Some(0), ..CLEAN });
    let hosts: Vec<_> = (1..=3)
        .map(|number| {
            tokio::spawn(listening((hub.clone(), network.clone()), number, Arc::default()))
        })
        .collect();
    for each in hosts {
        assert_eq!(each.await.unwrap().0, Some(Finish::Silent));
    }
    assert_eq!(hub.answer(host(1), &join(1)).unwrap_err(), Refusal::NotFound);
    tokio::time::sleep(DEAF_PAUSE).await;
    assert!(hub.answer(host(1), &join(1)).is_ok());
    hub.stop();
}
