//! A bare TCP request/response of the sizes of GET and DATA: what the network and the kernel cost.

use std::collections::VecDeque;
use std::error::Error;
use std::time::{Duration, Instant};

use acstor_peer::frame::{GET_BODY_LEN, HEADER_LEN};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::measurement::{Measured, Schedule, cpu_seconds};
use crate::options::Options;

const REQUEST_LEN: usize = HEADER_LEN + GET_BODY_LEN;

/// Answers every request with as many bytes as its first four say.
pub async fn serve(listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        tokio::spawn(answer(stream));
    }
}

async fn answer(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut request = [0; REQUEST_LEN];
    let mut answer = Vec::new();
    loop {
        stream.read_exact(&mut request).await?;
        let len = u32::from_le_bytes([request[0], request[1], request[2], request[3]]) as usize;
        answer.resize(HEADER_LEN + len, 0x5a);
        stream.write_all(&answer).await?;
    }
}

/// Measures `connections` connections with `depth` requests in flight each.
pub async fn measure(options: &Options) -> Result<Measured, Box<dyn Error>> {
    let schedule = Schedule::starting_now(options);
    let (began, cpu) = (Instant::now(), cpu_seconds()?);
    let mut tasks = JoinSet::new();
    for _ in 0..options.connections {
        let stream = TcpStream::connect(&options.address).await?;
        tasks.spawn(ask(stream, options.clone(), schedule));
    }
    let mut latencies = Vec::new();
    while let Some(finished) = tasks.join_next().await {
        latencies.extend(finished??);
    }
    let wall = began.elapsed() - options.duration / 10;
    let cpu = cpu_seconds()? - cpu;
    Ok(Measured::new(latencies, wall, cpu, options.connections))
}

async fn ask(
    mut stream: TcpStream,
    options: Options,
    schedule: Schedule,
) -> std::io::Result<Vec<Duration>> {
    stream.set_nodelay(true)?;
    let mut request = [0; REQUEST_LEN];
    request[..4].copy_from_slice(&options.chunk_size.to_le_bytes());
    let mut answer = vec![0; HEADER_LEN + options.chunk_size as usize];
    let mut sent = VecDeque::new();
    let mut latencies = Vec::new();
    while Instant::now() < schedule.end {
        while sent.len() < options.depth {
            sent.push_back(Instant::now());
            stream.write_all(&request).await?;
        }
        stream.read_exact(&mut answer).await?;
        let began = sent.pop_front().filter(|began| schedule.counts(*began));
        latencies.extend(began.map(|began| began.elapsed()));
    }
    Ok(latencies)
}
