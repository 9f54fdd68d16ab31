//! The command line.

use std::path::PathBuf;
use std::time::Duration;

/// Transport that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The peer protocol without TLS.
    Plain,
    /// The peer protocol over TLS.
    Tls,
    /// Requests and answers of the same size, nothing else.
    Bare,
}

impl Mode {
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Plain => "plain",
            Mode::Tls => "tls",
            Mode::Bare => "bare",
        }
    }
}

/// The options of one run.
#[derive(Clone, Debug)]
pub struct Options {
    pub address: String,
    pub mode: Mode,
    pub certificates: PathBuf,
    pub connections: usize,
    pub depth: usize,
    pub chunk_size: u32,
    pub duration: Duration,
    pub threads: usize,
    pub content: Option<PathBuf>,
    pub is_compressed_welcome: bool,
    /// True if a fetch that failed is counted; else it ends the run.
    pub are_errors_counted: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            address: "127.0.0.1:0".to_owned(),
            mode: Mode::Plain,
            certificates: PathBuf::from("certificates"),
            connections: 1,
            depth: 1,
            chunk_size: 64 << 10,
            duration: Duration::from_secs(2),
            threads: 2,
            content: None,
            is_compressed_welcome: false,
            are_errors_counted: false,
        }
    }
}

impl Options {
    pub fn parse(arguments: &[String]) -> Result<Options, String> {
        let mut options = Options::default();
        let mut rest = arguments.iter();
        while let Some(name) = rest.next() {
            let value = rest.next().ok_or_else(|| format!("{name} wants a value"))?;
            let bad = |_| format!("{name}: bad value {value}");
            match name.as_str() {
                "--address" => options.address = value.clone(),
                "--mode" => {
                    options.mode = match value.as_str() {
                        "plain" => Mode::Plain,
                        "tls" => Mode::Tls,
                        "bare" => Mode::Bare,
                        other => return Err(format!("--mode is plain, tls or bare, not {other}")),
                    }
                }
                "--certificates" => options.certificates = value.into(),
                "--content" => options.content = Some(value.into()),
                "--compressed" => {
                    options.is_compressed_welcome = match value.as_str() {
                        "welcome" => true,
                        "no" => false,
                        other => return Err(format!("--compressed is welcome or no, not {other}")),
                    }
                }
                "--on-error" => {
                    options.are_errors_counted = match value.as_str() {
                        "count" => true,
                        "stop" => false,
                        other => return Err(format!("--on-error is stop or count, not {other}")),
                    }
                }
                "--connections" => options.connections = value.parse().map_err(bad)?,
                "--depth" => options.depth = value.parse().map_err(bad)?,
                "--chunk-size" => options.chunk_size = value.parse().map_err(bad)?,
                "--seconds" => {
                    let seconds: f64 =
                        value.parse().map_err(|_| format!("{name}: bad value {value}"))?;
                    options.duration = Duration::try_from_secs_f64(seconds)
                        .map_err(|_| format!("{name}: bad value {value}"))?;
                }
                "--threads" => options.threads = value.parse().map_err(bad)?,
                other => return Err(format!("unknown option {other}")),
            }
        }
        Ok(options)
    }
}
