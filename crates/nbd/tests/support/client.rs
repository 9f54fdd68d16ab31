//! A small NBD client that shows what it gets.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

use acstor_nbd::protocol::constants::*;
use acstor_nbd::protocol::{HeaderStyle, ReplyShape, RequestHeader};

/// An answer to an option: kind and data of each message.
pub type OptionAnswer = Vec<(u32, Vec<u8>)>;

/// An answer to a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    pub cookie: u64,
    /// 0 is success.
    pub errno: u32,
    pub message: String,
    /// The bytes of a read, holes filled with zeroes, from the request's offset on.
    pub data: Vec<u8>,
    /// Content chunks: offset, length, whether it is a hole.
    pub chunks: Vec<(u64, usize, bool)>,
    /// Extents by context: length and flags.
    pub extents: Vec<(u32, Vec<(u64, u64)>)>,
}

/// A client after the greeting.
pub struct Client {
    pub stream: UnixStream,
    pub shape: ReplyShape,
    pub size: u64,
    pub flags: u16,
    next_cookie: u64,
    /// Offset of every request sent, by its cookie.
    offsets: HashMap<u64, u64>,
}

impl Client {
    /// Exchanges the greetings.
    pub fn greeted(mut stream: UnixStream) -> Client {
        let mut greeting = [0; 18];
        stream.read_exact(&mut greeting).unwrap();
        assert_eq!(greeting[..8], INIT_MAGIC.to_be_bytes());
        assert_eq!(greeting[8..16], OPTION_MAGIC.to_be_bytes());
        assert_eq!(greeting[16..], (FLAG_FIXED_NEWSTYLE | FLAG_NO_ZEROES).to_be_bytes());
        let flags = CLIENT_FIXED_NEWSTYLE | CLIENT_NO_ZEROES;
        stream.write_all(&flags.to_be_bytes()).unwrap();
        let offsets = HashMap::new();
        Client { stream, shape: ReplyShape::Simple, size: 0, flags: 0, next_cookie: 1, offsets }
    }

    pub fn send_option(&mut self, code: u32, data: &[u8]) {
        self.stream.write_all(&option(code, data)).unwrap();
    }

    /// Sends an option and returns its messages up to the last.
    pub fn option(&mut self, code: u32, data: &[u8]) -> OptionAnswer {
        self.send_option(code, data);
        let mut messages = Vec::new();
        loop {
            assert_eq!(self.u64(), OPTION_REPLY_MAGIC);
            assert_eq!(self.u32(), code);
            let kind = self.u32();
            let len = self.u32() as usize;
            messages.push((kind, self.bytes(len)));
            if kind == REP_ACK || kind >> 31 == 1 {
                return messages;
            }
        }
    }

    /// The kind of the last message.
    pub fn option_outcome(&mut self, code: u32, data: &[u8]) -> u32 {
        self.option(code, data).last().unwrap().0
    }

    /// Agrees on the shape of answers.
    pub fn with_shape(mut self, shape: ReplyShape) -> Client {
        let code = match shape {
            ReplyShape::Simple => return self,
            ReplyShape::Structured => OPT_STRUCTURED_REPLY,
            ReplyShape::Extended => OPT_EXTENDED_HEADERS,
        };
        assert_eq!(self.option_outcome(code, &[]), REP_ACK);
        self.shape = shape;
        self
    }

    /// Selects both metadata contexts: ids 1 and 2.
    pub fn with_contexts(mut self) -> Client {
        let data = context_query("disk", &["base:allocation", "acstor:dirty"]);
        assert_eq!(self.option(OPT_SET_META_CONTEXT, &data).len(), 3);
        self
    }

    /// Begins transmission.
    pub fn go(mut self) -> Client {
        let messages = self.option(OPT_GO, &go_request("disk", &[]));
        assert_eq!(messages.last().unwrap().0, REP_ACK);
        let info = &messages[0].1;
        assert_eq!(info[..2], INFO_EXPORT.to_be_bytes());
        self.size = u64::from_be_bytes(info[2..10].try_into().unwrap());
        self.flags = u16::from_be_bytes(info[10..12].try_into().unwrap());
        self
    }

    pub fn style(&self) -> HeaderStyle {
        match self.shape {
            ReplyShape::Extended => HeaderStyle::Extended,
            _ => HeaderStyle::Compact,
        }
    }

    /// The header of a request with a fresh cookie.
    pub fn header(&mut self, command: u16, flags: u16, offset: u64, length: u64) -> RequestHeader {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        self.offsets.insert(cookie, offset);
        RequestHeader { flags, command, cookie, offset, length }
    }

    /// Sends a request and returns its cookie.
    pub fn send(&mut self, command: u16, flags: u16, offset: u64, length: u64) -> u64 {
        let header = self.header(command, flags, offset, length);
        self.stream.write_all(&header.encode(self.style())).unwrap();
        header.cookie
    }

    pub fn send_write(&mut self, flags: u16, offset: u64, data: &[u8]) -> u64 {
        let is_extended = self.style() == HeaderStyle::Extended;
        let flags = if is_extended { flags | CMD_FLAG_PAYLOAD_LEN } else { flags };
        let cookie = self.send(CMD_WRITE, flags, offset, data.len() as u64);
        self.stream.write_all(data).unwrap();
        cookie
    }

    /// Sends a request and returns its answer.
    pub fn ask(&mut self, command: u16, flags: u16, offset: u64, length: u64) -> Answer {
        let cookie = self.send(command, flags, offset, length);
        let read_len = if command == CMD_READ { length as usize } else { 0 };
        self.answer_to(cookie, offset, read_len)
    }

    pub fn read(&mut self, offset: u64, len: usize) -> Answer {
        self.ask(CMD_READ, 0, offset, len as u64)
    }

    pub fn write(&mut self, offset: u64, data: &[u8]) -> Answer {
        let cookie = self.send_write(0, offset, data);
        self.answer_to(cookie, offset, 0)
    }

    /// Receives the next answer, which is to be the one to `cookie`.
    pub fn answer_to(&mut self, cookie: u64, offset: u64, read_len: usize) -> Answer {
        let answer = self.answer(offset, read_len);
        assert_eq!(answer.cookie, cookie);
        answer
    }

    /// Receives the next answer; `offset` and `read_len` are those of a read.
    pub fn answer(&mut self, offset: u64, read_len: usize) -> Answer {
        if self.shape == ReplyShape::Simple {
            return self.simple_answer(read_len);
        }
        let mut answer = Answer { data: vec![0; read_len], ..Answer::default() };
        let mut covered = 0;
        loop {
            let (flags, kind, cookie, payload) = self.chunk();
            answer.cookie = cookie;
            match kind {
                REPLY_TYPE_NONE => assert!(payload.is_empty()),
                REPLY_TYPE_OFFSET_DATA | REPLY_TYPE_OFFSET_HOLE => {
                    let at = u64::from_be_bytes(payload[..8].try_into().unwrap());
                    let is_hole = kind == REPLY_TYPE_OFFSET_HOLE;
                    let len = if is_hole {
                        u32::from_be_bytes(payload[8..12].try_into().unwrap()) as usize
                    } else {
                        let start = (at - offset) as usize;
                        let bytes = &payload[8..];
                        answer.data[start..start + bytes.len()].copy_from_slice(bytes);
                        bytes.len()
                    };
                    assert!(len > 0);
                    covered += len;
                    answer.chunks.push((at, len, is_hole));
                }
                REPLY_TYPE_BLOCK_STATUS | REPLY_TYPE_BLOCK_STATUS_EXT => {
                    answer.extents.push(extents(kind, &payload));
                }
                REPLY_TYPE_ERROR => {
                    answer.errno = u32::from_be_bytes(payload[..4].try_into().unwrap());
                    answer.message = String::from_utf8(payload[6..].to_vec()).unwrap();
                    answer.data.clear();
                }
                other => panic!("chunk of type {other}"),
            }
            if flags & REPLY_FLAG_DONE != 0 {
                assert!(answer.errno != 0 || covered == read_len, "{covered} of {read_len}");
                return answer;
            }
        }
    }

    fn simple_answer(&mut self, read_len: usize) -> Answer {
        assert_eq!(self.u32(), SIMPLE_REPLY_MAGIC);
        let errno = self.u32();
        let cookie = self.u64();
        let data = if errno == 0 { self.bytes(read_len) } else { Vec::new() };
        Answer { cookie, errno, data, ..Answer::default() }
    }

    fn chunk(&mut self) -> (u16, u16, u64, Vec<u8>) {
        let magic = self.u32();
        let flags_and_kind = self.u32();
        let cookie = self.u64();
        let len = match self.shape {
            ReplyShape::Extended => {
                assert_eq!(magic, EXTENDED_REPLY_MAGIC);
                assert_eq!(self.u64(), self.offsets[&cookie]);
                self.u64() as usize
            }
            _ => {
                assert_eq!(magic, STRUCTURED_REPLY_MAGIC);
                self.u32() as usize
            }
        };
        let payload = self.bytes(len);
        ((flags_and_kind >> 16) as u16, flags_and_kind as u16, cookie, payload)
    }

    /// Waits until the server closes; returns what it still sent.
    pub fn until_closed(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        match self.stream.read_to_end(&mut rest) {
            Ok(_) => rest,
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => rest,
            Err(error) => panic!("the server did not close: {error}"),
        }
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.stream.read_exact(&mut bytes).unwrap();
        bytes
    }

    fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.bytes(4).try_into().unwrap())
    }

    fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.bytes(8).try_into().unwrap())
    }
}

/// An option on the wire.
pub fn option(code: u32, data: &[u8]) -> Vec<u8> {
    let mut bytes = OPTION_MAGIC.to_be_bytes().to_vec();
    bytes.extend_from_slice(&code.to_be_bytes());
    bytes.extend_from_slice(&(data.len() as u32).to_be_bytes());
    bytes.extend_from_slice(data);
    bytes
}

/// Data of `OPT_GO` and `OPT_INFO`.
pub fn go_request(name: &str, infos: &[u16]) -> Vec<u8> {
    let mut data = string(name);
    data.extend_from_slice(&(infos.len() as u16).to_be_bytes());
    infos.iter().for_each(|info| data.extend_from_slice(&info.to_be_bytes()));
    data
}

/// Data of `OPT_LIST_META_CONTEXT` and `OPT_SET_META_CONTEXT`.
pub fn context_query(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = string(name);
    data.extend_from_slice(&(queries.len() as u32).to_be_bytes());
    queries.iter().for_each(|query| data.extend_from_slice(&string(query)));
    data
}

fn string(text: &str) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes(), text.as_bytes()].concat()
}

fn extents(kind: u16, payload: &[u8]) -> (u32, Vec<(u64, u64)>) {
    let context = u32::from_be_bytes(payload[..4].try_into().unwrap());
    let extents: Vec<(u64, u64)> = if kind == REPLY_TYPE_BLOCK_STATUS_EXT {
        let count = u32::from_be_bytes(payload[4..8].try_into().unwrap()) as usize;
        assert_eq!(payload.len(), 8 + 16 * count);
        let pair = |at: &[u8]| {
            let len = u64::from_be_bytes(at[..8].try_into().unwrap());
            (len, u64::from_be_bytes(at[8..].try_into().unwrap()))
        };
        payload[8..].chunks(16).map(pair).collect()
    } else {
        let pair = |at: &[u8]| {
            let len = u32::from_be_bytes(at[..4].try_into().unwrap());
            (len.into(), u32::from_be_bytes(at[4..].try_into().unwrap()).into())
        };
        payload[4..].chunks(8).map(pair).collect()
    };
    assert!(!extents.is_empty() && extents.iter().all(|(len, _)| *len > 0));
    (context, extents)
}
