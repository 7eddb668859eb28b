//! Distributes requests over the servers.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

use crate::{EndpointError, Server};

use super::adapters::Target;
use super::completions::{Choice, CompletionRequest};
use super::servers::{BETWEEN_CHECKS, locked};
use super::{Servers, VllmError};

/// Requests that have not been sent, shared by the threads that send them.
struct Queue {
    requests: Arc<[CompletionRequest]>,
    /// Indices of the requests.
    waiting: Mutex<VecDeque<usize>>,
    stop: AtomicBool,
}

impl Queue {
    fn take(&self) -> Option<usize> {
        let is_stopped = self.stop.load(Ordering::Relaxed);
        (!is_stopped).then(|| locked(&self.waiting).pop_front()).flatten()
    }

    /// Lets another server answer a request.
    fn put_back(&self, index: usize) {
        locked(&self.waiting).push_front(index);
    }
}

/// The result of a request.
enum Event {
    Answer { request: usize, choices: Vec<Choice> },
    Failure { server: usize, error: EndpointError },
}

impl Servers {
    /// Returns the answers to all requests in their order. A request whose server fails is sent to
    /// another one. Returns shortly after `interrupt` is set, without waiting for replies.
    pub(crate) fn complete(
        &self,
        target: &Target<'_>,
        requests: Vec<CompletionRequest>,
        interrupt: &AtomicBool,
    ) -> Result<Vec<Vec<Choice>>, VllmError> {
        let requests: Arc<[CompletionRequest]> = requests.into();
        let mut answers: Vec<Option<Vec<Choice>>> = vec![None; requests.len()];
        // Servers that have lost the adapter, because they were restarted.
        let mut restarted = Vec::new();
        let (mut readmit, mut since) = (true, Instant::now());
        loop {
            let is_waiting = |index: &usize| answers[*index].is_none();
            let waiting: VecDeque<usize> = (0..requests.len()).filter(is_waiting).collect();
            if waiting.is_empty() {
                return Ok(answers.into_iter().flatten().collect());
            }
            let count = waiting.len();
            let ready = self.ready(target, readmit, since, interrupt)?;
            // A server that fails is left out until the next call, unless no server is left.
            readmit = false;
            let waiting = Mutex::new(waiting);
            let queue =
                Queue { requests: Arc::clone(&requests), waiting, stop: AtomicBool::new(false) };
            let queue = Arc::new(queue);
            let round = self.round(&queue, &ready, &mut answers, interrupt);
            queue.stop.store(true, Ordering::Relaxed);
            for (server, error) in round? {
                if restarted.contains(&server) {
                    self.leave_out(server, &error.into());
                } else {
                    restarted.push(server);
                    self.distrust(server);
                }
            }
            if answers.iter().filter(|answer| answer.is_none()).count() < count {
                since = Instant::now();
            }
        }
    }

    /// Sends requests until the queue is empty or all servers have failed. Returns the servers that
    /// have lost the adapter.
    fn round(
        &self,
        queue: &Arc<Queue>,
        ready: &[usize],
        answers: &mut [Option<Vec<Choice>>],
        interrupt: &AtomicBool,
    ) -> Result<Vec<(usize, EndpointError)>, VllmError> {
        let (sender, events) = mpsc::channel();
        let count = self.config.parallel.min(locked(&queue.waiting).len());
        let mut threads = 0;
        // One thread for each server in turn, so that few requests are distributed too. The threads
        // may outlive this call, so they must not keep the servers.
        for server in (0..count).flat_map(|_| ready).copied() {
            let client = self.members[server].sampling.clone();
            let (queue, sender) = (Arc::clone(queue), sender.clone());
            match thread::Builder::new().spawn(move || send(server, &client, &queue, &sender)) {
                Ok(_) => threads += 1,
                Err(error) if threads == 0 => return Err(VllmError::Thread(error.to_string())),
                // Fewer threads are enough.
                Err(_) => break,
            }
        }
        drop(sender);
        let mut lost: Vec<(usize, EndpointError)> = Vec::new();
        loop {
            if interrupt.load(Ordering::Relaxed) {
                return Err(VllmError::Interrupted);
            }
            match events.recv_timeout(BETWEEN_CHECKS) {
                Ok(Event::Answer { request, choices }) => answers[request] = Some(choices),
                Ok(Event::Failure { server, error }) if error.is_unavailable() => {
                    self.leave_out(server, &error.into());
                }
                Ok(Event::Failure { server, error }) if error.status() == Some(404) => {
                    if lost.iter().all(|(other, _)| *other != server) {
                        lost.push((server, error));
                    }
                }
                Ok(Event::Failure { error, .. }) => return Err(error.into()),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(lost),
            }
        }
    }
}

/// Sends requests to one server until the queue is empty or the server fails.
fn send(server: usize, client: &Server, queue: &Queue, events: &Sender<Event>) {
    while let Some(request) = queue.take() {
        let event = match client.request(&queue.requests[request], &queue.stop) {
            Ok(choices) => Event::Answer { request, choices },
            Err(error) => {
                queue.put_back(request);
                Event::Failure { server, error }
            }
        };
        let is_failure = matches!(event, Event::Failure { .. });
        if events.send(event).is_err() || is_failure {
            return;
        }
    }
}
