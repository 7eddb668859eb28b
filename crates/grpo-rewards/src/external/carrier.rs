//! What carries requests to a program or a server.

use std::sync::Arc;
use std::time::Duration;

use super::output::Output;

/// Why a request has no usable reply.
#[derive(Debug)]
pub(super) enum Fault {
    /// The program ended. A new one may answer.
    Died(String),
    /// It is late, or what it wrote is not a reply.
    Other(String),
}

impl Fault {
    pub(super) fn reason(self) -> String {
        match self {
            Self::Died(reason) | Self::Other(reason) => reason,
        }
    }
}

/// Opens connections to what scores.
pub(super) trait Carrier: Send + Sync {
    /// Starts a program, or connects to a server.
    fn connect(&self, output: &Arc<Output>) -> Result<Box<dyn Connection>, Fault>;
}

/// Carries one request at a time.
pub(super) trait Connection: Send {
    /// Sends a request and waits for its reply, at most `limit`.
    fn exchange(&mut self, request: &[u8], limit: Duration) -> Result<Vec<u8>, Fault>;

    /// Whether it carries another request after a good reply.
    fn is_reusable(&self) -> bool {
        true
    }
}
