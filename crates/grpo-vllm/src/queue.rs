//! Distributes requests over the servers.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use grpo_endpoint::EndpointError;

use crate::adapters::AdapterOnDisk;
use crate::completions::{Choice, CompletionRequest};
use crate::servers::locked;
use crate::{Servers, VllmError};

/// How often the interrupt flag is checked.
const BETWEEN_CHECKS: Duration = Duration::from_millis(50);

/// Requests that have not been sent, shared by the threads that send them.
struct Queue {
    requests: Vec<CompletionRequest>,
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
        self: &Arc<Self>,
        adapter: &AdapterOnDisk,
        requests: Vec<CompletionRequest>,
        interrupt: &AtomicBool,
    ) -> Result<Vec<Vec<Choice>>, VllmError> {
        let mut answers: Vec<Option<Vec<Choice>>> = vec![None; requests.len()];
        let waiting = Mutex::new((0..requests.len()).collect());
        let queue = Arc::new(Queue { requests, waiting, stop: AtomicBool::new(false) });
        // Servers that have lost the adapter, because they were restarted. It is loaded again once.
        let mut restarted = Vec::new();
        let mut readmit = true;
        while answers.iter().any(Option::is_none) {
            let ready = self.ready(adapter, readmit, interrupt)?;
            // A server that fails is left out until the next call, unless no server is left.
            readmit = false;
            match self.round(&queue, &ready, &mut answers, interrupt) {
                Ok(lost) => match lost.iter().find(|(server, _)| restarted.contains(server)) {
                    Some((_, error)) => return Err(error.clone().into()),
                    None => restarted.extend(lost.iter().map(|(server, _)| *server)),
                },
                Err(error) => {
                    queue.stop.store(true, Ordering::Relaxed);
                    return Err(error);
                }
            }
        }
        Ok(answers.into_iter().map(|answer| answer.expect("every request has an answer")).collect())
    }

    /// Sends requests until the queue is empty or all servers have failed. Returns the servers that
    /// have lost the adapter.
    fn round(
        self: &Arc<Self>,
        queue: &Arc<Queue>,
        ready: &[usize],
        answers: &mut [Option<Vec<Choice>>],
        interrupt: &AtomicBool,
    ) -> Result<Vec<(usize, EndpointError)>, VllmError> {
        let mut lost = Vec::new();
        let (sender, events) = mpsc::channel();
        let count = self.config.parallel.min(locked(&queue.waiting).len());
        // One thread for each server in turn, so that few requests are distributed too.
        for server in (0..count).flat_map(|_| ready).copied() {
            let (servers, queue, sender) = (Arc::clone(self), Arc::clone(queue), sender.clone());
            thread::spawn(move || servers.send(server, &queue, &sender));
        }
        drop(sender);
        loop {
            match events.recv_timeout(BETWEEN_CHECKS) {
                Ok(Event::Answer { request, choices }) => answers[request] = Some(choices),
                Ok(Event::Failure { server, error }) if error.is_unavailable() => {
                    self.leave_out(server, &error.into());
                }
                Ok(Event::Failure { server, error }) if error.status() == Some(404) => {
                    self.forget_adapters(server);
                    lost.push((server, error));
                }
                Ok(Event::Failure { error, .. }) => return Err(error.into()),
                Err(RecvTimeoutError::Timeout) if interrupt.load(Ordering::Relaxed) => {
                    return Err(VllmError::Interrupted);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Ok(lost),
            }
        }
    }

    /// Sends requests to one server until the queue is empty or the server fails.
    fn send(&self, server: usize, queue: &Queue, events: &Sender<Event>) {
        while let Some(request) = queue.take() {
            let client = &self.members[server].server;
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
}
