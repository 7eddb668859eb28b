//! What distinguishes the APIs of a server: path, body and answer.

use serde_json::{Map, Value};

/// A request of one API, for example `/chat/completions`. Sending, retries, counters and the cache
/// are the same for all of them.
pub trait Request {
    /// What a successful reply contains.
    type Answer;

    /// Path after the base URL, without a slash in front.
    const PATH: &'static str;

    /// Returns the JSON body.
    fn body(&self) -> Map<String, Value>;

    /// Returns the answer in a reply with status 200.
    ///
    /// # Errors
    /// Returns an error if the reply contains no answer.
    fn answer(&self, reply: &Value) -> Result<Self::Answer, ReplyFault>;
}

/// How to fix replies that are not those of the API.
pub(crate) const FIX_OF_API: &str = "check that the URL is that of an OpenAI-compatible API";

/// Why a reply contains no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyFault {
    /// What is wrong, as the end of a sentence that starts with "the reply".
    pub what: String,
    /// How to fix it.
    pub fix: &'static str,
    /// Whether other requests may succeed. If not, the batch ends.
    pub is_of_request: bool,
}

impl ReplyFault {
    /// A reply that is not what the API specifies. No other request is sent.
    pub fn of_endpoint(what: impl Into<String>) -> Self {
        Self { what: what.into(), fix: FIX_OF_API, is_of_request: false }
    }

    /// Replaces [`Self::fix`].
    #[must_use]
    pub fn with_fix(self, fix: &'static str) -> Self {
        Self { fix, ..self }
    }

    /// A reply without an answer to this request.
    pub fn of_request(what: impl Into<String>, fix: &'static str) -> Self {
        Self { what: what.into(), fix, is_of_request: true }
    }
}

/// Parses a reply.
pub(crate) fn json(reply: &[u8]) -> Result<Value, ReplyFault> {
    serde_json::from_slice(reply).map_err(|_| ReplyFault::of_endpoint("is not JSON"))
}
