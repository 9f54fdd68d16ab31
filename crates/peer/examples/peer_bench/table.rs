//! The standard runs on the loopback interface, server and client in processes of their own.

use std::error::Error;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use serde_json::Value;

/// Connections and depth of each run.
const SHAPES: [(usize, usize); 4] = [(1, 1), (1, 8), (1, 32), (4, 16)];
const MODES: [&str; 3] = ["bare", "plain", "tls"];

/// A server process; ends with its standard input.
struct Server {
    process: Child,
    output: BufReader<ChildStdout>,
    address: String,
}

impl Server {
    fn start(mode: &str, directory: &Path) -> Result<Server, Box<dyn Error>> {
        let mut process = Command::new(std::env::current_exe()?)
            .args(["server", "--mode", mode, "--certificates"])
            .arg(directory)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut output = BufReader::new(process.stdout.take().ok_or("no standard output")?);
        let mut address = String::new();
        output.read_line(&mut address)?;
        Ok(Server { process, output, address: address.trim().to_owned() })
    }

    /// Ends the server and returns the CPU seconds that it used.
    fn finish(mut self) -> Result<f64, Box<dyn Error>> {
        drop(self.process.stdin.take());
        let mut report = String::new();
        self.output.read_to_string(&mut report)?;
        self.process.wait()?;
        let report: Value = serde_json::from_str(&report)?;
        report["cpu_seconds"].as_f64().ok_or_else(|| "no CPU seconds".into())
    }
}

/// Runs every mode and shape; `arguments` go to the clients (`--seconds`, `--chunk-size`).
pub fn run(arguments: &[String]) -> Result<(), Box<dyn Error>> {
    let directory = tempfile::tempdir()?;
    crate::certificates::write(directory.path(), &["127.0.0.1".to_owned()])?;
    let mut results = Vec::new();
    println!("mode   conns  depth  p50 us    p99 us      MB/s  CPU s/GiB client  server");
    for (connections, depth) in SHAPES {
        for mode in MODES {
            let result = run_one(mode, connections, depth, directory.path(), arguments)?;
            let number = |name: &str| result[name].as_f64().unwrap_or(f64::NAN);
            println!(
                "{mode:<6} {connections:>5}  {depth:>5}  {:>6.1}  {:>8.1}  {:>8.0}  {:>16.2}  {:>6.2}",
                number("p50_us"),
                number("p99_us"),
                number("throughput_mb_s"),
                number("client_cpu_seconds_per_gib"),
                number("server_cpu_seconds_per_gib"),
            );
            results.push(result);
        }
    }
    println!("{}", Value::Array(results));
    Ok(())
}

fn run_one(
    mode: &str,
    connections: usize,
    depth: usize,
    directory: &Path,
    arguments: &[String],
) -> Result<Value, Box<dyn Error>> {
    let server = Server::start(mode, directory)?;
    let output = Command::new(std::env::current_exe()?)
        .args(["client", "--mode", mode, "--address", &server.address])
        .args(["--connections", &connections.to_string(), "--depth", &depth.to_string()])
        .arg("--certificates")
        .arg(directory)
        .args(arguments)
        .stderr(Stdio::inherit())
        .output()?;
    let server_cpu = server.finish()?;
    if !output.status.success() {
        return Err(format!("the {mode} client failed").into());
    }
    let mut result: Value = serde_json::from_slice(&output.stdout)?;
    let gib = result["bytes"].as_f64().unwrap_or(f64::NAN) / f64::from(1 << 30);
    result["server_cpu_seconds_per_gib"] = (server_cpu / gib).into();
    Ok(result)
}
