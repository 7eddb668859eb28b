//! Messages over MPI.

use std::iter;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use mpi::environment::Universe;
use mpi::point_to_point::Status;
use mpi::request::{LocalScope, Request, scope};
use mpi::topology::SimpleCommunicator;
use mpi::traits::{Communicator, Destination, Source};
use mpi::{Tag, Threading};

use super::{RankError, Transport};

/// Called with an error before all ranks are aborted, to print it.
pub type Report = Box<dyn Fn(&RankError) + Send + Sync>;

/// A rank that `mpirun` or `srun` has started.
///
/// Only messages between pairs of ranks are used. Collective operations of MPI would neither say
/// which rank is missing nor return after a time limit, and their sums depend on the number of
/// ranks.
pub struct Mpi {
    /// Ends MPI when it is dropped.
    _universe: Universe,
    rank: usize,
    count: usize,
    time_limit: Duration,
    report: Report,
    /// Locked during an exchange, because MPI does not support concurrent calls
    /// (`MPI_THREAD_SERIALIZED`).
    exchange: Mutex<()>,
}

/// Largest single message in bytes, because MPI counts elements in an `i32`.
const PIECE: usize = 1 << 30;

/// A rank that waits must not take the core from one that computes.
fn until_it_arrives(attempts: u32) {
    thread::sleep((Duration::from_micros(20) * attempts).min(Duration::from_millis(1)));
}

/// MPI moves a large message piece by piece, in calls of both ranks. If that takes long, the other rank
/// waits for a third one.
fn during_transfer(attempts: u32) {
    match attempts {
        ..10_000 => thread::yield_now(),
        _ => thread::sleep(Duration::from_micros(100)),
    }
}

/// MPI keeps the order of messages with the same tag.
const TAG: Tag = 0;

impl Mpi {
    /// Connects the ranks. If a rank is silent for longer than `time_limit` while another one waits
    /// for it, `report` is called and all ranks are aborted.
    ///
    /// Returns `None` if MPI is already in use in this process, or if the MPI library doesn't
    /// support programs with several threads.
    pub fn connect(time_limit: Duration, report: Report) -> Option<Self> {
        let (universe, threading) = mpi::initialize_with_threading(Threading::Serialized)?;
        if threading < Threading::Serialized {
            return None;
        }
        let world = universe.world();
        let (rank, count) = (world.rank() as usize, world.size() as usize);
        Some(Self {
            _universe: universe,
            rank,
            count,
            time_limit,
            report,
            exchange: Mutex::new(()),
        })
    }

    /// Waits until `ready` returns a value, and calls `pause` with the number of attempts in between.
    /// Aborts all ranks after the time limit.
    fn wait<T>(&self, other: usize, pause: fn(u32), mut ready: impl FnMut() -> Option<T>) -> T {
        let started = Instant::now();
        let mut attempts = 0_u32;
        loop {
            if let Some(value) = ready() {
                return value;
            }
            if started.elapsed() > self.time_limit {
                let what = format!("has not answered for {} s", self.time_limit.as_secs_f64());
                (self.report)(&RankError::Silent { rank: other, count: self.count, what });
                self.abort(1);
            }
            pause(attempts);
            attempts = attempts.saturating_add(1);
        }
    }

    fn finish<'a>(&self, other: usize, request: Request<'a, [u8], &LocalScope<'a>>) -> Status {
        let mut pending = Some(request);
        self.wait(other, during_transfer, || match pending.take()?.test() {
            Ok(status) => Some(status),
            Err(request) => {
                pending = Some(request);
                None
            }
        })
    }

    fn receive(&self, from: usize) -> Vec<u8> {
        let world = SimpleCommunicator::world();
        let source = world.process_at_rank(from as i32);
        let probe = || source.immediate_matched_probe_with_tag(TAG);
        let receive_into = |piece: &mut [u8]| {
            let (message, _) = self.wait(from, until_it_arrives, probe);
            scope(|scope| {
                let request = message.immediate_matched_receive_into(scope, piece);
                self.finish(from, request);
            });
        };
        let mut length = [0; 8];
        receive_into(&mut length);
        let mut bytes = vec![0; u64::from_le_bytes(length) as usize];
        bytes.chunks_mut(PIECE).for_each(receive_into);
        bytes
    }
}

impl Drop for Mpi {
    /// A panic on one rank ends all of them. Otherwise, MPI would wait for the others here.
    fn drop(&mut self) {
        if thread::panicking() {
            self.abort(101);
        }
    }
}

impl Transport for Mpi {
    fn rank(&self) -> usize {
        self.rank
    }

    fn count(&self) -> usize {
        self.count
    }

    fn time_limit(&self) -> Option<Duration> {
        Some(self.time_limit)
    }

    fn exchange(&self, mut messages: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, RankError> {
        let (world, own, count) = (SimpleCommunicator::world(), self.rank, self.count);
        assert_eq!(messages.len(), count, "one message for each rank");
        let _locked = self.exchange.lock().unwrap_or_else(PoisonError::into_inner);
        let to_self = std::mem::take(&mut messages[own]);
        let lengths: Vec<[u8; 8]> =
            messages.iter().map(|message| (message.len() as u64).to_le_bytes()).collect();
        let mut received = scope(|scope| {
            let mut sending = Vec::new();
            for other in (0..count).filter(|&other| other != own) {
                let to = world.process_at_rank(other as i32);
                let pieces = messages[other].chunks(PIECE);
                for piece in iter::once(&lengths[other][..]).chain(pieces) {
                    sending.push((other, to.immediate_send_with_tag(scope, piece, TAG)));
                }
            }
            let received: Vec<Vec<u8>> = (0..count)
                .map(|other| if other == own { Vec::new() } else { self.receive(other) })
                .collect();
            for (other, piece) in sending {
                self.finish(other, piece);
            }
            received
        });
        received[own] = to_self;
        Ok(received)
    }

    fn abort(&self, exit_code: i32) -> ! {
        SimpleCommunicator::world().abort(exit_code)
    }
}
