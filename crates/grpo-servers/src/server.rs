//! One request at a time.

use std::sync::atomic::AtomicBool;

use serde_json::{Map, Value};

use crate::config::EndpointConfig;
use crate::error::EndpointError;
use crate::http::Http;
use crate::request::{Request, json};

/// A server, for callers that decide themselves which request to send next. It can be used by several
/// threads at the same time, and does not count or cache anything. See also [`crate::Client`].
#[derive(Clone, Debug)]
pub struct Server {
    http: Http,
}

impl Server {
    /// Creates a client of the server. It connects when it sends its first request.
    ///
    /// # Errors
    /// Returns an error if a setting is out of range, or if the environment variable with the API key
    /// is not set.
    pub fn new(config: EndpointConfig) -> Result<Self, EndpointError> {
        Ok(Self { http: Http::new(config)? })
    }

    /// Returns the base URL, without a slash at the end.
    pub fn url(&self) -> &str {
        self.http.base()
    }

    /// Returns whether the server runs on this machine.
    pub fn is_local(&self) -> bool {
        self.http.is_local()
    }

    /// Sends a request, with retries. No more attempts are made once `stop` is set.
    ///
    /// # Errors
    /// Returns an error if there is no reply, or if the reply contains no answer.
    pub fn request<R: Request>(
        &self,
        request: &R,
        stop: &AtomicBool,
    ) -> Result<R::Answer, EndpointError> {
        let reply = self.sent(R::PATH, Some(&request.body()), stop)?;
        let answer = json(&reply).and_then(|json| request.answer(&json));
        answer.map_err(|fault| self.http.fault(&self.http.url(R::PATH), fault, &reply))
    }

    /// Posts a JSON body to `path`, with retries, and returns the reply, which can be any text.
    ///
    /// # Errors
    /// Returns an error if no reply with status 200 arrives.
    pub fn post(&self, path: &str, body: &Map<String, Value>) -> Result<String, EndpointError> {
        let reply = self.sent(path, Some(body), &AtomicBool::new(false))?;
        Ok(String::from_utf8_lossy(&reply).into_owned())
    }

    /// Gets the JSON document at `path`, with retries.
    ///
    /// # Errors
    /// Returns an error if no reply with status 200 arrives, or if it is not JSON.
    pub fn get(&self, path: &str) -> Result<Value, EndpointError> {
        let reply = self.sent(path, None, &AtomicBool::new(false))?;
        json(&reply).map_err(|fault| self.http.fault(&self.http.url(path), fault, &reply))
    }

    fn sent(
        &self,
        path: &str,
        body: Option<&Map<String, Value>>,
        stop: &AtomicBool,
    ) -> Result<Vec<u8>, EndpointError> {
        let body = body.map(|body| serde_json::to_vec(body).expect("JSON serializes"));
        let exchange = self.http.exchange(path, body.as_deref(), stop);
        exchange.outcome.map_err(|failure| failure.error)
    }
}
