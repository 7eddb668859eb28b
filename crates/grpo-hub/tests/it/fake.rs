//! A hub on a port of this machine.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use sha1::Sha1;
use sha2::{Digest, Sha256};

pub(crate) const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// A request that the server received.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) headers: BTreeMap<String, String>,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(String::as_str)
    }

    /// Returns the first byte of the range that is asked for.
    pub(crate) fn from(&self) -> usize {
        let range = self.header("range").and_then(|range| range.strip_prefix("bytes="));
        range.map_or(0, |range| range.trim_end_matches('-').parse().unwrap())
    }
}

/// What the server sends.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
    /// The connection is closed after so many bytes of the body.
    pub(crate) cut: Option<usize>,
    /// Nothing is sent for a while after the cut.
    pub(crate) stall: Duration,
}

impl Reply {
    pub(crate) fn status(status: u16) -> Self {
        Self { status, ..Self::default() }
    }

    pub(crate) fn with(mut self, name: &'static str, value: impl ToString) -> Self {
        self.headers.push((name, value.to_string()));
        self
    }

    pub(crate) fn code(status: u16, code: &str) -> Self {
        Self::status(status).with("X-Error-Code", code)
    }
}

/// A server whose threads end with the process.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) url: String,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Server {
    /// Starts a server that calls `reply` with the number of earlier requests like this one and the
    /// request.
    pub(crate) fn start(reply: impl Fn(usize, &Received) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let received: Arc<Mutex<Vec<Received>>> = Arc::default();
        let (all, reply) = (received.clone(), Arc::new(reply));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (all, reply) = (all.clone(), reply.clone());
                thread::spawn(move || {
                    let request = read(&stream);
                    let earlier = {
                        let mut all = all.lock().unwrap();
                        let is_same = |other: &&Received| {
                            (&other.method, &other.path) == (&request.method, &request.path)
                        };
                        let earlier = all.iter().filter(is_same).count();
                        all.push(request.clone());
                        earlier
                    };
                    // The client may have given up.
                    let _ = write(&stream, &request, &reply(earlier, &request));
                });
            }
        });
        Self { url, received }
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    /// Returns the requests as lines, with the start of a range.
    pub(crate) fn log(&self) -> Vec<String> {
        let line = |request: &Received| {
            let from = request.from();
            let range = if from > 0 { format!(" from {from}") } else { String::new() };
            format!("{} {}{range}", request.method, request.path)
        };
        self.received().iter().map(line).collect()
    }
}

fn read(stream: &TcpStream) -> Received {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let mut words = line.split(' ').map(str::to_owned);
    let (method, path) = (words.next().unwrap(), words.next().unwrap_or_default());
    let mut headers = BTreeMap::new();
    loop {
        line.clear();
        reader.read_line(&mut line).unwrap();
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_lowercase(), value.to_owned());
    }
    Received { method, path, headers }
}

fn write(mut stream: &TcpStream, request: &Received, reply: &Reply) -> std::io::Result<()> {
    let mut head = format!("HTTP/1.1 {} X\r\nConnection: close\r\n", reply.status);
    if !reply.headers.iter().any(|(name, _)| *name == "Content-Length") {
        head += &format!("Content-Length: {}\r\n", reply.body.len());
    }
    for (name, value) in &reply.headers {
        head += &format!("{name}: {value}\r\n");
    }
    stream.write_all((head + "\r\n").as_bytes())?;
    if request.method == "HEAD" {
        return Ok(());
    }
    let end = reply.cut.unwrap_or(reply.body.len()).min(reply.body.len());
    stream.write_all(&reply.body[..end])?;
    stream.flush()?;
    thread::sleep(reply.stall);
    Ok(())
}

/// A repository of the hub.
#[derive(Clone, Debug)]
pub(crate) struct Repo {
    /// `models/org/name` or `datasets/org/name`.
    name: &'static str,
    /// Paths, contents, and whether they are in LFS.
    files: Vec<(&'static str, Vec<u8>, bool)>,
    /// Where contents of LFS are.
    pub(crate) cdn: Option<String>,
}

impl Repo {
    pub(crate) fn new(name: &'static str, files: &[(&'static str, &[u8], bool)]) -> Self {
        let files = files.iter().map(|(path, body, lfs)| (*path, body.to_vec(), *lfs)).collect();
        Self { name, files, cdn: None }
    }

    pub(crate) fn listing(&self) -> Reply {
        let files = self.files.iter().map(|(path, body, is_lfs)| {
            let (size, git) = (body.len(), git_hash(body));
            let lfs = match is_lfs {
                true => format!(
                    r#","lfs":{{"sha256":"{}","size":{size},"pointerSize":130}}"#,
                    sha256(body)
                ),
                false => String::new(),
            };
            format!(r#"{{"rfilename":"{path}","size":{size},"blobId":"{git}"{lfs}}}"#)
        });
        let files: Vec<String> = files.collect();
        let body = format!(r#"{{"id":"a/b","sha":"{COMMIT}","siblings":[{}]}}"#, files.join(","));
        Reply { body: body.into_bytes(), ..Reply::status(200) }
    }

    /// Answers as the hub does.
    pub(crate) fn reply(&self, request: &Received) -> Reply {
        let api = format!("/api/{}", self.name);
        if let Some(rest) = request.path.strip_prefix(&api) {
            let revisions = ["main", "v1", "refs%2Fpr%2F1", "refs%2Fconvert%2Fparquet", COMMIT]
                .map(|name| format!("/revision/{name}?blobs=true"));
            return match rest {
                "" => self.listing(),
                rest if revisions.iter().any(|revision| revision == rest) => self.listing(),
                _ => Reply::code(404, "RevisionNotFound"),
            };
        }
        let files = format!("/{}/resolve/{COMMIT}/", self.name.trim_start_matches("models/"));
        let path = request.path.strip_prefix(&files);
        match self.files.iter().find(|(name, ..)| Some(*name) == path) {
            Some((_, body, is_lfs)) => self.file(request, body, *is_lfs),
            None => Reply::code(404, "RepoNotFound"),
        }
    }

    fn file(&self, request: &Received, body: &[u8], is_lfs: bool) -> Reply {
        if !is_lfs {
            let etag = format!("W/\"{}\"", git_hash(body));
            return content(request, body).with("X-Repo-Commit", COMMIT).with("ETag", etag);
        }
        let described = match &self.cdn {
            Some(cdn) => Reply::status(302).with("Location", format!("{cdn}/blob?key=secret")),
            None => content(request, body),
        };
        described
            .with("X-Repo-Commit", COMMIT)
            .with("X-Linked-Etag", format!("\"{}\"", sha256(body)))
            .with("X-Linked-Size", body.len())
    }
}

/// Sends a content, or the range of it that is asked for.
pub(crate) fn content(request: &Received, body: &[u8]) -> Reply {
    let from = request.from();
    let rest = Reply { body: body[from.min(body.len())..].to_vec(), ..Reply::default() };
    let end = body.len().saturating_sub(1);
    match from {
        0 => Reply { status: 200, ..rest },
        _ if from >= body.len() => Reply::status(416),
        _ => Reply { status: 206, ..rest }
            .with("Content-Range", format!("bytes {from}-{end}/{}", body.len())),
    }
}

/// Bytes that differ from each other.
pub(crate) fn noise(size: usize) -> Vec<u8> {
    (0..size).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}

pub(crate) fn git_hash(body: &[u8]) -> String {
    let blob = [format!("blob {}\0", body.len()).as_bytes(), body].concat();
    Sha1::digest(&blob).iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(crate) fn sha256(body: &[u8]) -> String {
    Sha256::digest(body).iter().map(|byte| format!("{byte:02x}")).collect()
}
