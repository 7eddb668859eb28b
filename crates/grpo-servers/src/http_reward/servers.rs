//! Distributes the requests of a reward over several HTTP servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use grpo_rewards::external::{Carrier, Connection, Fault, Output};

use super::server::{Failure, Reply, Server};

/// Time limit of a connection if there are other servers.
const PATIENCE: Duration = Duration::from_secs(5);

/// Servers with identical scoring. Each request goes to the next one in turn.
pub(super) struct Servers(Arc<All>);

struct All {
    servers: Vec<Server>,
    /// Whether each server is left out, because it could not be reached.
    is_left_out: Vec<AtomicBool>,
    next: AtomicUsize,
}

impl Servers {
    pub(super) fn new(servers: Vec<Server>) -> Self {
        let is_left_out = servers.iter().map(|_| AtomicBool::new(false)).collect();
        Self(Arc::new(All { servers, is_left_out, next: AtomicUsize::new(0) }))
    }
}

impl All {
    /// Returns the servers for a request, in the order in which they are tried. If all of them were
    /// left out, all are tried again.
    fn in_turn(&self) -> Vec<usize> {
        let (count, first) = (self.servers.len(), self.next.fetch_add(1, Ordering::Relaxed));
        let all: Vec<usize> = (0..count).map(|offset| (first + offset) % count).collect();
        let is_used = |index: &usize| !self.is_left_out[*index].load(Ordering::Relaxed);
        let used: Vec<usize> = all.iter().copied().filter(is_used).collect();
        if used.is_empty() { all } else { used }
    }
}

impl Carrier for Servers {
    fn connect(&self, output: &Arc<Output>, _: &AtomicBool) -> Result<Box<dyn Connection>, Fault> {
        let (servers, output) = (Arc::clone(&self.0), Arc::clone(output));
        Ok(Box::new(InTurn { servers, output, framing: String::new() }))
    }
}

struct InTurn {
    servers: Arc<All>,
    output: Arc<Output>,
    /// See [`Reply::framing`].
    framing: String,
}

impl Connection for InTurn {
    /// Sends the request to the first server that can be reached. A server that has received the
    /// request is the only one, because it may have processed it. An HTTP request cannot be
    /// cancelled, but nothing waits for it after an interrupt.
    fn exchange(
        &mut self,
        request: &[u8],
        limit: Duration,
        _: &AtomicBool,
    ) -> Result<Vec<u8>, Fault> {
        let end = Instant::now() + limit;
        let mut in_turn = self.servers.in_turn();
        let last = in_turn.pop().expect("there is at least one server");
        for index in in_turn {
            let reply = self.servers.servers[index].reply_once(request, end, Some(PATIENCE));
            if let Err(Failure::Unreached(error)) = &reply {
                let url = self.servers.servers[index].url();
                self.output.note(&format!(
                    "the reward server {url} cannot be reached and is left out: {error}"
                ));
                self.servers.is_left_out[index].store(true, Ordering::Relaxed);
                continue;
            }
            return self.received(index, reply, limit);
        }
        let reply = self.servers.servers[last].reply(request, end);
        self.received(last, reply, limit)
    }

    fn framing(&self) -> &str {
        &self.framing
    }
}

impl InTurn {
    fn received(
        &mut self,
        index: usize,
        reply: Result<Reply, Failure>,
        limit: Duration,
    ) -> Result<Vec<u8>, Fault> {
        let is_unreached = matches!(reply, Err(Failure::Unreached(_)));
        self.servers.is_left_out[index].store(is_unreached, Ordering::Relaxed);
        let of_server = |what: String| {
            format!("the reward server {}: {what}", self.servers.servers[index].url())
        };
        match reply {
            Ok(Reply { body, framing }) => {
                self.framing = framing;
                Ok(body)
            }
            Err(Failure::Late(arrived)) => Err(Fault::Late(of_server(format!(
                "no reply within {limit:?} (reward.time_limit times the completions of the request){arrived}"
            )))),
            Err(Failure::Unreached(what) | Failure::Other(what)) => {
                Err(Fault::Other(of_server(what)))
            }
        }
    }
}
