//! Sends requests of any API and returns their answers in order.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use serde_json::{Map, Value};

use crate::cache::{self, Cache};
use crate::config::EndpointConfig;
use crate::connection::Scope;
use crate::error::EndpointError;
use crate::http::{Exchange, Http};
use crate::request::{ReplyFault, Request, json};
use crate::usage::Usage;

/// A client of one server.
#[derive(Debug)]
pub struct Client {
    http: Http,
    cache: Option<Cache>,
    usage: Usage,
}

/// State of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Number of requests with an answer or a final error.
    pub done: usize,
    /// Number of requests of the batch.
    pub total: usize,
    /// Counters of the client.
    pub usage: Usage,
}

/// Answers in the order of their requests. A request that the server refuses, or whose reply has no
/// answer, has an error.
pub type Answers<A> = Vec<Result<A, EndpointError>>;

impl Client {
    /// Creates a client. It connects when it sends its first request.
    ///
    /// # Errors
    /// Returns an error if a setting is out of range, or if the environment variable with the API key
    /// is not set.
    pub fn new(config: EndpointConfig) -> Result<Self, EndpointError> {
        Ok(Self { http: Http::new(config)?, cache: None, usage: Usage::default() })
    }

    /// Looks up requests in a cache before they are sent, and adds the replies to it. Equal requests
    /// of a batch are then sent only once.
    #[must_use]
    pub fn with_cache(mut self, cache: Cache) -> Self {
        self.cache = Some(cache);
        self
    }

    /// Returns the usage counters, which start at zero when the client is created.
    pub fn usage(&self) -> Usage {
        self.usage
    }

    /// Sends requests, several at a time, and returns their answers in the order of the requests.
    /// `progress` is called on this thread for each request.
    ///
    /// # Errors
    /// Returns the first error that other requests would have too, such as a refused connection or a
    /// wrong API key. No more requests are sent then; replies until then are in the cache. Status 408
    /// and 5xx, timeouts and closed connections are such errors only if no request has had a reply
    /// yet, from the server or the cache. If no request has an answer, the error of the first one is
    /// returned.
    pub fn send_all<R: Request>(
        &mut self,
        requests: &[R],
        progress: impl FnMut(Progress),
    ) -> Result<Answers<R::Answer>, EndpointError> {
        let mut batch = Batch::new(&self.http, requests, progress);
        let mut to_send = Vec::new();
        let mut equal = Vec::new();
        match &self.cache {
            None => to_send.extend(0..requests.len()),
            Some(cache) => {
                let mut known = HashMap::new();
                for index in 0..requests.len() {
                    let key = cache::key(&batch.url, &batch.bodies[index]);
                    if let Some(reply) = cache.get(&key) {
                        self.usage.cache_hits += 1;
                        let answer = batch.answer(index, &reply);
                        batch.finish(index, answer, self.usage);
                    } else if let Some(first) = known.get(&key) {
                        equal.push((index, *first));
                    } else {
                        known.insert(key, index);
                        to_send.push(index);
                    }
                }
            }
        }
        self.send(&mut batch, &to_send)?;
        for (index, first) in equal {
            let key = cache::key(&batch.url, &batch.bodies[index]);
            let reply = self.cache.as_ref().and_then(|cache| cache.get(&key));
            let answer = match (reply, &batch.answers[first]) {
                (Some(reply), _) => {
                    self.usage.cache_hits += 1;
                    batch.answer(index, &reply)
                }
                (None, Some(Err(error))) => Err(error.clone()),
                (None, _) => unreachable!("the first equal request has a cached reply or an error"),
            };
            batch.finish(index, answer, self.usage);
        }
        batch.into_answers()
    }

    /// Sends the requests with the given indices.
    fn send<R: Request, P: FnMut(Progress)>(
        &mut self,
        batch: &mut Batch<'_, R, P>,
        indices: &[usize],
    ) -> Result<(), EndpointError> {
        let (next, stop) = (AtomicUsize::new(0), AtomicBool::new(false));
        // Cached replies count, so that a second run ends like the first one.
        let has_reply = AtomicBool::new(batch.done > 0);
        let (sender, receiver) = mpsc::channel();
        let bytes: Vec<Vec<u8>> = indices
            .iter()
            .map(|index| serde_json::to_vec(&batch.bodies[*index]).expect("JSON serializes"))
            .collect();
        let (http, next, stop_flag, has_reply, bytes) =
            (&self.http, &next, &stop, &has_reply, &bytes);
        let mut fatal = None;
        thread::scope(|scope| {
            for _ in 0..http.parallel().min(indices.len()) {
                let sender = sender.clone();
                scope.spawn(move || {
                    while !stop_flag.load(Ordering::Relaxed) {
                        let position = next.fetch_add(1, Ordering::Relaxed);
                        let Some(body) = bytes.get(position) else { return };
                        let mut exchange = http.exchange(R::PATH, Some(body), stop_flag);
                        match &mut exchange.outcome {
                            Ok(_) => has_reply.store(true, Ordering::Relaxed),
                            Err(failure) => {
                                failure.decide(has_reply.load(Ordering::Relaxed));
                                if failure.scope == Scope::Endpoint {
                                    stop_flag.store(true, Ordering::Relaxed);
                                }
                            }
                        }
                        if sender.send((position, exchange)).is_err() {
                            return;
                        }
                    }
                });
            }
            drop(sender);
            for (position, exchange) in receiver {
                let (cache, usage) = (self.cache.as_mut(), &mut self.usage);
                if let Err(error) = receive(batch, indices[position], exchange, cache, usage) {
                    // Errors after the first one may be its consequences.
                    fatal.get_or_insert(error);
                    stop.store(true, Ordering::Relaxed);
                }
            }
        });
        fatal.map_or(Ok(()), Err)
    }
}

/// Counts an exchange, caches its reply and notes its answer.
fn receive<R: Request, P: FnMut(Progress)>(
    batch: &mut Batch<'_, R, P>,
    index: usize,
    exchange: Exchange,
    cache: Option<&mut Cache>,
    usage: &mut Usage,
) -> Result<(), EndpointError> {
    usage.requests += u64::from(exchange.attempts);
    usage.retries += u64::from(exchange.attempts.saturating_sub(1));
    let bytes = match exchange.outcome {
        Ok(bytes) => bytes,
        Err(failure) if failure.scope == Scope::Request => {
            batch.finish(index, Err(failure.error), *usage);
            return Ok(());
        }
        Err(failure) => return Err(failure.error),
    };
    let fault = |fault: ReplyFault| batch.http.fault(&batch.url, fault, &bytes);
    let reply: Value = json(&bytes).map_err(fault)?;
    usage.add_tokens(&reply);
    let (error, is_of_request) = match batch.requests[index].answer(&reply) {
        Ok(answer) => {
            if let Some(cache) = cache {
                let body = &batch.bodies[index];
                cache.append(cache::key(&batch.url, body), &batch.url, body.clone(), reply)?;
            }
            batch.finish(index, Ok(answer), *usage);
            return Ok(());
        }
        Err(found) => (fault(found.clone()), found.is_of_request),
    };
    if !is_of_request {
        return Err(error);
    }
    batch.finish(index, Err(error), *usage);
    Ok(())
}

/// Requests and the answers to those that are done.
struct Batch<'a, R: Request, P> {
    http: Http,
    url: String,
    requests: &'a [R],
    bodies: Vec<Map<String, Value>>,
    answers: Vec<Option<Result<R::Answer, EndpointError>>>,
    done: usize,
    progress: P,
}

impl<'a, R: Request, P: FnMut(Progress)> Batch<'a, R, P> {
    fn new(http: &Http, requests: &'a [R], progress: P) -> Self {
        Self {
            http: http.clone(),
            url: http.url(R::PATH),
            requests,
            bodies: requests.iter().map(Request::body).collect(),
            answers: requests.iter().map(|_| None).collect(),
            done: 0,
            progress,
        }
    }

    /// Returns the answer in a cached reply.
    fn answer(&self, index: usize, reply: &Value) -> Result<R::Answer, EndpointError> {
        self.requests[index].answer(reply).map_err(|fault| EndpointError::Reply {
            url: format!("cached reply of {}", self.url),
            what: fault.what,
            body: self.http.excerpt(reply.to_string().as_bytes()),
            fix: "delete its line from the cache".to_owned(),
        })
    }

    fn finish(&mut self, index: usize, answer: Result<R::Answer, EndpointError>, usage: Usage) {
        self.answers[index] = Some(answer);
        self.done += 1;
        (self.progress)(Progress { done: self.done, total: self.requests.len(), usage });
    }

    fn into_answers(self) -> Result<Answers<R::Answer>, EndpointError> {
        let answers: Answers<R::Answer> =
            self.answers.into_iter().map(|answer| answer.expect("every request is done")).collect();
        match answers.first() {
            Some(Err(error)) if answers.iter().all(Result::is_err) => Err(error.clone()),
            _ => Ok(answers),
        }
    }
}
