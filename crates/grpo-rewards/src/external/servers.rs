//! Distributes the requests of a reward over several HTTP servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::carrier::{Carrier, Connection, Fault};
use super::output::Output;
use super::server::Server;

/// Time limit of a connection if there are other servers.
const PATIENCE: Duration = Duration::from_secs(5);

/// Servers with identical scoring. Each request goes to the next one in turn.
pub(super) struct Servers {
    servers: Vec<Server>,
    /// Whether each server is left out, because it could not be reached.
    is_left_out: Vec<AtomicBool>,
    next: AtomicUsize,
}

impl Servers {
    pub(super) fn new(servers: Vec<Server>) -> Arc<Self> {
        let is_left_out = servers.iter().map(|_| AtomicBool::new(false)).collect();
        Arc::new(Self { servers, is_left_out, next: AtomicUsize::new(0) })
    }

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

impl Carrier for Arc<Servers> {
    fn connect(&self, output: &Arc<Output>) -> Result<Box<dyn Connection>, Fault> {
        Ok(Box::new(InTurn { servers: Arc::clone(self), output: Arc::clone(output) }))
    }
}

struct InTurn {
    servers: Arc<Servers>,
    output: Arc<Output>,
}

impl Connection for InTurn {
    /// Sends the request to the first server that can be reached. A server that has received the
    /// request is the only one, because it may have processed it.
    fn exchange(&mut self, request: &[u8], limit: Duration) -> Result<Vec<u8>, Fault> {
        let end = Instant::now() + limit;
        let mut in_turn = self.servers.in_turn();
        let last = in_turn.pop().expect("there is at least one server");
        for index in in_turn {
            let server = &self.servers.servers[index];
            let stream = server.connect_once(end.min(Instant::now() + PATIENCE));
            self.servers.is_left_out[index].store(stream.is_err(), Ordering::Relaxed);
            match stream {
                Ok(stream) => return server.reply(Ok(stream), request, end, limit),
                Err(error) => self.output.note(&format!(
                    "the reward server {} cannot be reached and is left out: {error}",
                    server.url()
                )),
            }
        }
        let stream = self.servers.servers[last].connected(end);
        self.servers.is_left_out[last].store(stream.is_err(), Ordering::Relaxed);
        self.servers.servers[last].reply(stream, request, end, limit)
    }
}
