//! The transport of requests to a program or server.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use super::output::Output;

/// The reason why a request has no valid reply.
#[derive(Debug)]
pub enum Fault {
    /// The program exited. The request can be sent to a new process.
    Died(String),
    /// The request timed out. Perhaps only one of its completions takes too long.
    Late(String),
    /// The reply is invalid, or the run was interrupted.
    Other(String),
}

impl Fault {
    pub(super) fn reason(self) -> String {
        match self {
            Self::Died(reason) | Self::Late(reason) | Self::Other(reason) => reason,
        }
    }

    /// Returns the fault of a request that was cancelled.
    pub(super) fn cancelled() -> Self {
        Self::Other("the run was interrupted".to_owned())
    }
}

/// Creates connections to a program or server.
pub trait Carrier: Send + Sync {
    /// Starts the program or connects to the server. Notes for the user go to `output`.
    ///
    /// # Errors
    /// Returns an error if there is no connection, or if `cancelled` is set.
    fn connect(
        &self,
        output: &Arc<Output>,
        cancelled: &AtomicBool,
    ) -> Result<Box<dyn Connection>, Fault>;
}

/// A connection that processes one request at a time.
pub trait Connection: Send {
    /// Sends a request and waits for the reply, for at most `limit` and until `cancelled` is set.
    ///
    /// # Errors
    /// Returns an error if no valid reply arrives.
    fn exchange(
        &mut self,
        request: &[u8],
        limit: Duration,
        cancelled: &AtomicBool,
    ) -> Result<Vec<u8>, Fault>;

    /// Returns `true` if the connection can be used for another request after a valid reply.
    fn is_reusable(&self) -> bool {
        true
    }

    /// Says what determined the length of the last reply, for error messages.
    fn framing(&self) -> &str {
        ""
    }
}
