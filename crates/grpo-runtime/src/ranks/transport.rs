//! Interface between ranks and the library that carries their messages.

use std::time::Duration;

/// An error in the communication between ranks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RankError {
    /// A rank is gone or has not sent its message in time.
    #[error("rank {rank} of {count} {what}; see its own messages and the state of its machine")]
    Silent {
        /// Number of the rank.
        rank: usize,
        /// Number of ranks.
        count: usize,
        /// What happened, e.g. `has not answered for 600 s`.
        what: String,
    },
    /// A rank has sent something else than expected, because it runs other code.
    #[error(
        "rank {rank} sent a message that this rank cannot read ({fault}); start all ranks with the same program and command"
    )]
    Unreadable {
        /// Number of the rank.
        rank: usize,
        /// Reason from the decoder.
        fault: String,
    },
    /// Something failed on one rank.
    #[error("rank {rank}: {reason}")]
    Failed {
        /// Number of the rank.
        rank: usize,
        /// Error message of that rank.
        reason: String,
    },
}

/// Carries messages between ranks. All ranks call [`Self::exchange`] equally often and in the same
/// order.
pub trait Transport: Send + Sync {
    /// Returns the number of this rank, counted from 0.
    fn rank(&self) -> usize;

    /// Returns the number of ranks.
    fn count(&self) -> usize;

    /// Returns how long [`Self::exchange`] waits for a rank, if there is a limit.
    fn time_limit(&self) -> Option<Duration> {
        None
    }

    /// Sends `messages[r]` to rank r, and returns one message from each rank, in their order. The
    /// message to this rank itself is returned unchanged.
    ///
    /// # Errors
    /// Returns an error if a rank is gone or silent for too long. An implementation may end the process
    /// instead.
    ///
    /// # Panics
    /// Panics if the number of messages is not the number of ranks.
    fn exchange(&self, messages: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, RankError>;

    /// Ends all ranks.
    fn abort(&self, exit_code: i32) -> !;
}
