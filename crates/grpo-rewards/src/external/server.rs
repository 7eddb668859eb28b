//! A reward server, which receives requests over HTTP.
//!
//! A POST request to a scoring server only requires HTTP/1.0 without TLS: there is one request per
//! connection, and the server closes the connection after the reply. An HTTP client library would
//! enable additional features of crates that the tensor library depends on.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::thread;
use std::time::{Duration, Instant};

use grpo_data::ConfigFault;

use super::carrier::Fault;
use super::protocol::excerpt;

/// Maximum size of a reply in bytes.
const MOST: usize = 16 << 20;
/// Maximum size of the status line and headers in bytes.
const MOST_OF_HEAD: usize = 1 << 16;
/// Delays between connection attempts, in milliseconds.
const PAUSES: [u64; 5] = [100, 200, 400, 800, 1600];

/// A server.
pub(super) struct Server {
    url: String,
    host: String,
    address: String,
    path: String,
}

impl Server {
    pub(super) fn new(url: &str) -> Result<Self, ConfigFault> {
        let refused = || {
            ConfigFault::from_sentence(
                "",
                format!(
                    "reward.url = \"{url}\" is not a supported URL; expected one such as http://localhost:8000/score (https is not supported)"
                ),
            )
        };
        let is_plain = url.chars().all(|c| c.is_ascii_graphic());
        let rest = url.strip_prefix("http://").filter(|_| is_plain).ok_or_else(refused)?;
        let (host, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if host.is_empty() || host.contains('@') {
            return Err(refused());
        }
        let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let address = if has_port { host.to_owned() } else { format!("{host}:80") };
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        Ok(Self { url: url.to_owned(), host: host.to_owned(), address, path })
    }

    pub(super) fn url(&self) -> &str {
        &self.url
    }

    /// Sends a request over a connection and returns the body of the reply.
    pub(super) fn reply(
        &self,
        stream: io::Result<TcpStream>,
        request: &[u8],
        end: Instant,
        limit: Duration,
    ) -> Result<Vec<u8>, Fault> {
        let late = |error: io::Error| match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                format!(
                    "no reply within {limit:?} (reward.time_limit times the completions of the request)"
                )
            }
            _ => error.to_string(),
        };
        let reply = stream.and_then(|stream| self.post(stream, request, end));
        let reply = reply.map_err(late).and_then(|reply| body(&reply));
        reply.map_err(|what| Fault::Other(format!("the reward server {}: {what}", self.url)))
    }

    /// Connects to the server, retrying after a delay. Requests are never sent twice, because the
    /// server may have processed the first one.
    pub(super) fn connected(&self, end: Instant) -> io::Result<TcpStream> {
        let mut pauses = PAUSES.map(Duration::from_millis).into_iter();
        loop {
            let error = match self.connect_once(end) {
                Ok(stream) => return Ok(stream),
                Err(error) => error,
            };
            match pauses.next().filter(|pause| Instant::now() + *pause < end) {
                Some(pause) => thread::sleep(pause),
                None => return Err(error),
            }
        }
    }

    pub(super) fn connect_once(&self, end: Instant) -> io::Result<TcpStream> {
        let mut last = io::Error::new(ErrorKind::NotFound, "cannot resolve its host");
        for address in self.address.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, left(end)?) {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Sends a request and returns the complete reply.
    fn post(&self, mut stream: TcpStream, request: &[u8], end: Instant) -> io::Result<Vec<u8>> {
        let head = format!(
            "POST {} HTTP/1.0\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            self.path,
            self.host,
            request.len()
        );
        stream.set_write_timeout(Some(left(end)?))?;
        stream.write_all(&[head.as_bytes(), request].concat())?;
        let (mut reply, mut buffer) = (Vec::new(), [0; 1 << 16]);
        while !is_complete(&reply) {
            stream.set_read_timeout(Some(left(end)?))?;
            match stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(count) => reply.extend(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
            if reply.len() > MOST_OF_HEAD && front(&reply).is_none() {
                break;
            }
            if reply.len() > MOST {
                return Err(io::Error::other("the response is larger than 16 MiB"));
            }
        }
        Ok(reply)
    }
}

fn left(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// Returns the length of the headers and the `Content-Length` if it is known.
fn front(reply: &[u8]) -> Option<(usize, Option<usize>)> {
    let first = &reply[..reply.len().min(MOST_OF_HEAD)];
    let end = 4 + first.windows(4).position(|bytes| bytes == b"\r\n\r\n")?;
    let head = String::from_utf8_lossy(&reply[..end]).to_ascii_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    Some((end, length.and_then(|length| length.trim().parse().ok())))
}

fn is_complete(reply: &[u8]) -> bool {
    let Some((end, Some(length))) = front(reply) else { return false };
    reply.len() - end >= length
}

/// Returns the body of a complete reply, or an error if the status does not indicate success.
fn body(reply: &[u8]) -> Result<Vec<u8>, String> {
    let Some((end, length)) = front(reply) else {
        return Err(format!("invalid HTTP response: {}", excerpt(reply)));
    };
    let first = String::from_utf8_lossy(&reply[..end]);
    let status = first.lines().next().unwrap_or_default().split_whitespace().nth(1);
    let body = &reply[end..];
    if length.is_some_and(|length| body.len() < length) {
        return Err(format!("the response was truncated after {} bytes", body.len()));
    }
    match status {
        Some(status) if status.starts_with('2') => Ok(body.to_vec()),
        status => {
            Err(format!("it returned status {}: {}", status.unwrap_or("none"), excerpt(body)))
        }
    }
}
