//! Ranks and the work that is distributed over them.

mod in_process;
mod launch;
#[cfg(feature = "mpi")]
mod mpi;
mod transport;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;

pub use launch::{Launch, launch};
#[cfg(feature = "mpi")]
pub use mpi::{Mpi, Report};
pub use transport::{RankError, Transport};

use in_process::in_process;

/// The ranks of a run, seen from one of them. A run in a single process is the special case of one
/// rank, which sends no messages.
///
/// All ranks must call the same methods in the same order. A call that fails then fails on all
/// ranks.
#[derive(Clone, Default)]
pub struct Ranks {
    /// `None` if there is only one rank.
    transport: Option<Arc<dyn Transport>>,
}

impl fmt::Debug for Ranks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ranks").field("rank", &self.rank()).field("count", &self.count()).finish()
    }
}

impl Ranks {
    /// Creates the only rank.
    pub fn alone() -> Self {
        Self::default()
    }

    /// Creates one of several ranks.
    pub fn new(transport: Arc<dyn Transport>) -> Self {
        Self { transport: (transport.count() > 1).then_some(transport) }
    }

    /// Creates `count` ranks that are threads of this process. Each of them has to be moved to its
    /// own thread. If ranks train, each also needs its own Rayon pool: in a shared one, a rank that
    /// waits for a message can keep a thread polling that another rank needs, which deadlocks both.
    pub fn in_process(count: usize) -> Vec<Self> {
        in_process(count).into_iter().map(|rank| Self::new(Arc::new(rank))).collect()
    }

    /// Returns the number of this rank, counted from 0.
    pub fn rank(&self) -> usize {
        self.transport.as_ref().map_or(0, |transport| transport.rank())
    }

    /// Returns the number of ranks.
    pub fn count(&self) -> usize {
        self.transport.as_ref().map_or(1, |transport| transport.count())
    }

    /// Returns whether there is only one rank.
    pub fn is_alone(&self) -> bool {
        self.transport.is_none()
    }

    /// Returns whether this is rank 0, which writes the files of a run.
    pub fn is_first(&self) -> bool {
        self.rank() == 0
    }

    /// Returns how long a rank waits for another one, or `None` if it doesn't have to wait or has no
    /// limit.
    pub fn time_limit(&self) -> Option<Duration> {
        self.transport.as_ref()?.time_limit()
    }

    /// Returns the share of this rank in `items` consecutive items. Shares differ by one item at
    /// most.
    pub fn share(&self, items: usize) -> Range<usize> {
        self.share_of(self.rank(), items)
    }

    /// Returns the share of `rank` in `items` consecutive items.
    pub fn share_of(&self, rank: usize, items: usize) -> Range<usize> {
        share(rank, self.count(), items)
    }

    /// Waits until all ranks have called this method.
    ///
    /// # Errors
    /// Returns an error under the same conditions as [`Self::gather`].
    pub fn wait_for_all(&self) -> Result<(), RankError> {
        self.gather(()).map(drop)
    }

    /// Returns the value of each rank, in the order of the ranks.
    ///
    /// Values are sent without the names of their fields, so a type must not leave out fields when it
    /// is serialised (`skip_serializing_if`), rely on names (`flatten`, `tag`, `untagged`), or hold any
    /// value (`serde_json::Value`). Debug builds check this with a single rank too.
    ///
    /// # Errors
    /// Returns an error if a rank is gone or silent for too long, or if it runs another program.
    pub fn gather<T: Serialize + DeserializeOwned>(&self, own: T) -> Result<Vec<T>, RankError> {
        let Some(transport) = &self.transport else {
            return Ok(vec![match cfg!(debug_assertions) {
                true => decode(&encode(&own)).expect("the value can be sent to other ranks"),
                false => own,
            }]);
        };
        let message = encode(&own);
        let received = transport.exchange(vec![message; transport.count()])?;
        let decode = |(rank, bytes): (usize, Vec<u8>)| {
            decode(&bytes).map_err(|fault| RankError::Unreadable { rank, fault })
        };
        received.into_iter().enumerate().map(decode).collect()
    }

    /// Returns the value of rank 0. Other ranks pass `None`.
    ///
    /// # Errors
    /// Returns an error under the same conditions as [`Self::gather`].
    ///
    /// # Panics
    /// Panics if rank 0 passes `None`.
    pub fn from_first<T: Serialize + DeserializeOwned>(
        &self,
        value: Option<T>,
    ) -> Result<T, RankError> {
        let first = self.gather(value)?.swap_remove(0);
        Ok(first.expect("rank 0 passes a value"))
    }

    /// Computes `items` values, each on one rank, and returns all of them on every rank. Rank r
    /// computes the values r, r + count, r + 2 · count and so on.
    ///
    /// # Errors
    /// Returns an error under the same conditions as [`Self::gather`].
    pub fn map<T: Serialize + DeserializeOwned>(
        &self,
        items: usize,
        compute: impl FnMut(usize) -> T,
    ) -> Result<Vec<T>, RankError> {
        let own = (self.rank()..items).step_by(self.count()).map(compute).collect();
        self.interleave(own)
    }

    /// Returns the values of all ranks in turn: the first value of each rank, then the second ones,
    /// and so on. This is the order of a list whose items were distributed one by one.
    ///
    /// # Errors
    /// Returns an error under the same conditions as [`Self::gather`].
    ///
    /// # Panics
    /// Panics if the lists of the ranks don't have the lengths of such a distribution.
    pub fn interleave<T: Serialize + DeserializeOwned>(
        &self,
        own: Vec<T>,
    ) -> Result<Vec<T>, RankError> {
        let all = self.gather(own)?;
        let items = all.iter().map(Vec::len).sum();
        let mut all: Vec<_> = all.into_iter().map(Vec::into_iter).collect();
        let count = all.len();
        let next = |item: usize| all[item % count].next().expect("items were distributed in turn");
        Ok((0..items).map(next).collect())
    }

    /// Returns whether `own` is true on any rank.
    ///
    /// # Errors
    /// Returns an error under the same conditions as [`Self::gather`].
    pub fn any(&self, own: bool) -> Result<bool, RankError> {
        Ok(self.gather(own)?.contains(&true))
    }

    /// Sends `messages[r]` to rank r and returns one message from each rank. See
    /// [`Transport::exchange`].
    ///
    /// # Errors
    /// Returns an error if a rank is gone or silent for too long.
    ///
    /// # Panics
    /// Panics if the number of messages is not the number of ranks.
    pub fn exchange(&self, messages: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, RankError> {
        assert_eq!(messages.len(), self.count(), "one message for each rank");
        match &self.transport {
            Some(transport) => transport.exchange(messages),
            None => Ok(messages),
        }
    }

    /// Ends all ranks with an exit code.
    pub fn abort(&self, exit_code: i32) -> ! {
        match &self.transport {
            Some(transport) => transport.abort(exit_code),
            None => std::process::exit(exit_code),
        }
    }
}

/// Returns the share of `rank` in `items` consecutive items.
fn share(rank: usize, count: usize, items: usize) -> Range<usize> {
    items * rank / count..items * (rank + 1) / count
}

fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_stdvec(value).expect("values of this program can be encoded")
}

fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => Err(format!("{} bytes too many", rest.len())),
        Err(fault) => Err(fault.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    /// Runs the same code on several ranks.
    fn on_ranks<T: Send>(count: usize, code: impl Fn(Ranks) -> T + Sync) -> Vec<T> {
        thread::scope(|scope| {
            let code = &code;
            let ranks = Ranks::in_process(count).into_iter();
            let threads: Vec<_> = ranks.map(|ranks| scope.spawn(move || code(ranks))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    #[test]
    fn shares_cover_all_items_once() {
        for count in 1..7 {
            for items in 0..20 {
                let shares: Vec<Range<usize>> =
                    (0..count).map(|rank| share(rank, count, items)).collect();
                let covered: Vec<usize> = shares.iter().cloned().flatten().collect();
                assert_eq!(covered, (0..items).collect::<Vec<_>>());
                let lengths = shares.iter().map(ExactSizeIterator::len);
                assert!(lengths.clone().max().unwrap() - lengths.min().unwrap() <= 1);
            }
        }
    }

    #[test]
    fn every_rank_gets_all_values_in_order() {
        for count in 1..5 {
            for items in [0, 1, 4, 7] {
                let squares = |ranks: Ranks| ranks.map(items, |item| item * item).unwrap();
                let expected: Vec<usize> = (0..items).map(|item| item * item).collect();
                assert_eq!(on_ranks(count, squares), vec![expected; count]);
            }
            let numbers = on_ranks(count, |ranks| ranks.gather(ranks.rank()).unwrap());
            assert_eq!(numbers, vec![(0..count).collect::<Vec<_>>(); count]);
            let last = on_ranks(count, |ranks| ranks.any(ranks.rank() == count - 1).unwrap());
            assert_eq!(last, vec![true; count]);
            let first = on_ranks(count, |ranks| {
                ranks.from_first(ranks.is_first().then(|| "of rank 0".to_owned())).unwrap()
            });
            assert_eq!(first, vec!["of rank 0"; count]);
            let none = on_ranks(count, |ranks| {
                ranks.from_first(Some(None::<u64>).filter(|_| ranks.is_first())).unwrap()
            });
            assert_eq!(none, vec![None; count]);
        }
    }

    /// Numbers arrive as they were sent, including those that JSON cannot represent.
    #[test]
    fn numbers_arrive_bit_for_bit() {
        let numbers = [f64::NAN, f64::INFINITY, -0.0, 0.1 + 0.2, f64::MIN_POSITIVE / 2.0, 1e300];
        let bits = |numbers: &[f64]| numbers.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        for received in on_ranks(2, |ranks| ranks.gather(numbers.to_vec()).unwrap()) {
            received.iter().for_each(|received| assert_eq!(bits(received), bits(&numbers)));
        }
    }

    #[test]
    fn a_rank_that_is_gone_or_runs_other_code_is_named() {
        let gone = on_ranks(3, |ranks| match ranks.rank() {
            2 => String::new(),
            _ => ranks.gather(1).unwrap_err().to_string(),
        });
        assert!(gone[0].starts_with("rank 2 of 3 has ended"), "{}", gone[0]);
        let other = on_ranks(2, |ranks| match ranks.rank() {
            0 => ranks.gather(1.5).map(|_| ()).unwrap_err().to_string(),
            _ => ranks.gather("text".to_owned()).map(|_| String::new()).unwrap_err().to_string(),
        });
        assert!(other[0].starts_with("rank 1 sent a message"), "{}", other[0]);
    }
}
