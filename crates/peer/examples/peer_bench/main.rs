//! Measures chunks from a peer: latency, throughput and CPU time, against a bare TCP request/response
//! of the same size.
//!
//! ```text
//! peer_bench table                      all of the below on the loopback interface
//! peer_bench certificates DIR NAME...   a CA and one certificate for NAMEs (host names, addresses)
//! peer_bench server OPTION...           serves until its standard input ends
//! peer_bench client OPTION...           measures; one JSON object on standard output
//!   --address IP:PORT   listen on or connect to (server: port 0 takes a free one; it is printed)
//!   --mode MODE         plain, tls or bare (default plain); the same on both sides
//!   --certificates DIR  for tls
//!   --connections N     client: connections (default 1)
//!   --depth N           client: requests in flight per connection (default 1)
//!   --chunk-size BYTES  client: (default 65536)
//!   --seconds S         client: after a tenth of it to warm up (default 2)
//!   --threads N         threads of the runtime (default 2)
//!   --content FILE      server: its chunks are those of the file, not one (default: one)
//!   --compressed WISH   client: welcome or no (default no)
//!   --on-error WHAT     client, but for bare: stop or count (default stop)
//! ```

mod bare;
mod certificates;
mod measurement;
mod options;
mod peers;
mod table;

use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use measurement::cpu_seconds;
use options::{Mode, Options};

type Outcome = Result<(), Box<dyn Error>>;

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (command, rest) =
        arguments.split_first().ok_or("say table, certificates, server or client")?;
    match command.as_str() {
        "table" => table::run(rest),
        "certificates" => {
            let (directory, names) = rest.split_first().ok_or("certificates: DIR NAME...")?;
            certificates::write(directory.as_ref(), names)
        }
        "server" => server(&Options::parse(rest)?),
        "client" => client(&Options::parse(rest)?),
        other => Err(format!("unknown command {other}").into()),
    }
}

fn runtime(options: &Options) -> Result<tokio::runtime::Runtime, Box<dyn Error>> {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    Ok(builder.worker_threads(options.threads).enable_all().build()?)
}

fn server(options: &Options) -> Outcome {
    let runtime = runtime(options)?;
    let _context = runtime.enter();
    let listener = TcpListener::bind(&options.address)?;
    println!("{}", listener.local_addr()?);
    std::io::stdout().flush()?;
    let peer_server = match options.mode {
        Mode::Bare => {
            listener.set_nonblocking(true)?;
            let listener = tokio::net::TcpListener::from_std(listener)?;
            runtime.spawn(bare::serve(listener));
            None
        }
        Mode::Plain | Mode::Tls => Some(peers::serve(listener, options)?),
    };
    std::io::stdin().read_to_end(&mut Vec::new())?;
    println!("{}", serde_json::json!({ "cpu_seconds": cpu_seconds()? }));
    if let Some(server) = peer_server {
        runtime.block_on(server.drain(Duration::from_secs(1)));
    }
    runtime.shutdown_background();
    Ok(())
}

fn client(options: &Options) -> Outcome {
    let runtime = runtime(options)?;
    let measured = match options.mode {
        Mode::Bare => runtime.block_on(bare::measure(options))?,
        Mode::Plain | Mode::Tls => runtime.block_on(peers::measure(options))?,
    };
    println!("{}", measured.to_json(options));
    runtime.shutdown_background();
    Ok(())
}
