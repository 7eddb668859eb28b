//! A server with recorded replies.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

/// What the server sends for a request.
#[derive(Clone, Debug)]
pub(crate) enum Reply {
    /// Status, headers and body.
    Http(u16, &'static str, String),
    /// The same after a delay.
    Slow(Duration, String),
    /// A body that is shorter than its Content-Length.
    Truncated,
    /// Nothing: the connection is closed.
    Closed,
    /// These bytes.
    Raw(String),
}

impl Reply {
    pub(crate) fn text(text: &str) -> Self {
        Self::Http(200, "", chat(text))
    }

    pub(crate) fn status(status: u16) -> Self {
        Self::Http(status, "", format!("status {status}"))
    }
}

/// The body of a chat reply.
pub(crate) fn chat(text: &str) -> String {
    let message = json!({"role": "assistant", "content": text});
    json!({
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 3}
    })
    .to_string()
}

/// A request that the server received.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) path: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Value,
}

impl Received {
    /// Text of the last message.
    pub(crate) fn text(&self) -> &str {
        let messages = self.body["messages"].as_array().unwrap();
        messages.last().unwrap()["content"].as_str().unwrap()
    }
}

/// A server on a port of this machine. Its threads end with the process.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) url: String,
    received: Arc<Mutex<Vec<Received>>>,
}

impl Server {
    /// Starts a server that calls `reply` with the index of a request and the request.
    pub(crate) fn start(reply: impl Fn(usize, &Received) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let received = Arc::new(Mutex::new(Vec::new()));
        let (all, reply) = (received.clone(), Arc::new(reply));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (all, reply) = (all.clone(), reply.clone());
                thread::spawn(move || {
                    let request = read(&stream);
                    let index = {
                        let mut all = all.lock().unwrap();
                        all.push(request.clone());
                        all.len() - 1
                    };
                    // The client may have given up.
                    let _ = write(&stream, &reply(index, &request));
                });
            }
        });
        Self { url, received }
    }

    /// Starts a server that sends these replies in their order, and the last one again and again.
    pub(crate) fn script(replies: Vec<Reply>) -> Self {
        Self::start(move |index, _| replies[index.min(replies.len() - 1)].clone())
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }
}

fn read(stream: &TcpStream) -> Received {
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let path = line.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut headers = BTreeMap::new();
    loop {
        line.clear();
        reader.read_line(&mut line).unwrap();
        let Some((name, value)) = line.trim_end().split_once(": ") else { break };
        headers.insert(name.to_lowercase(), value.to_owned());
    }
    let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    Received { path, headers, body: serde_json::from_slice(&body).unwrap_or_default() }
}

fn write(mut stream: &TcpStream, reply: &Reply) -> std::io::Result<()> {
    let mut send = |status: u16, headers: &str, length: usize, body: &str| {
        write!(
            stream,
            "HTTP/1.1 {status} X\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )
    };
    match reply {
        Reply::Http(status, headers, body) => send(*status, headers, body.len(), body),
        Reply::Slow(delay, body) => {
            thread::sleep(*delay);
            send(200, "", body.len(), body)
        }
        Reply::Truncated => send(200, "", 1000, "{\"choices\": "),
        Reply::Closed => Ok(()),
        Reply::Raw(text) => stream.write_all(text.as_bytes()),
    }
}
