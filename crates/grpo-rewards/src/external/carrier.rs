//! The transport of requests to a program or server.

use std::sync::Arc;
use std::time::Duration;

use super::output::Output;

/// The reason why a request has no valid reply.
#[derive(Debug)]
pub(super) enum Fault {
    /// The program exited. The request can be sent to a new process.
    Died(String),
    /// The request timed out or the reply is invalid.
    Other(String),
}

impl Fault {
    pub(super) fn reason(self) -> String {
        match self {
            Self::Died(reason) | Self::Other(reason) => reason,
        }
    }
}

/// Creates connections to a program or server.
pub(super) trait Carrier: Send + Sync {
    /// Starts the program or connects to the server.
    fn connect(&self, output: &Arc<Output>) -> Result<Box<dyn Connection>, Fault>;
}

/// A connection that processes one request at a time.
pub(super) trait Connection: Send {
    /// Sends a request and waits for the reply, for at most `limit`.
    fn exchange(&mut self, request: &[u8], limit: Duration) -> Result<Vec<u8>, Fault>;

    /// Returns `true` if the connection can be used for another request after a valid reply.
    fn is_reusable(&self) -> bool {
        true
    }
}
