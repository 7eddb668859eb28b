//! Ranks as threads of one process, for tests and for programs that embed the trainer.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::mpsc::{Receiver, Sender, channel};

use super::{RankError, Transport};

type Message = Vec<u8>;

/// A rank that is a thread.
pub(crate) struct InProcess {
    rank: usize,
    /// Channels to each rank.
    to: Vec<Sender<Message>>,
    /// Channels from each rank.
    from: Mutex<Vec<Receiver<Message>>>,
}

pub(crate) fn in_process(count: usize) -> Vec<InProcess> {
    let mut to: Vec<Vec<Sender<Message>>> = (0..count).map(|_| Vec::new()).collect();
    let mut from: Vec<Vec<Receiver<Message>>> = (0..count).map(|_| Vec::new()).collect();
    for to_all in &mut to {
        for from_all in &mut from {
            let (sender, receiver) = channel();
            to_all.push(sender);
            from_all.push(receiver);
        }
    }
    let ranks = to.into_iter().zip(from).enumerate();
    ranks.map(|(rank, (to, from))| InProcess { rank, to, from: Mutex::new(from) }).collect()
}

impl Transport for InProcess {
    fn rank(&self) -> usize {
        self.rank
    }

    fn count(&self) -> usize {
        self.to.len()
    }

    fn exchange(&self, messages: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, RankError> {
        let from = self.from.lock().unwrap_or_else(PoisonError::into_inner);
        let count = self.count();
        assert_eq!(messages.len(), count, "one message for each rank");
        let ended = |rank| RankError::Silent { rank, count, what: "has ended".to_owned() };
        for (sender, message) in self.to.iter().zip(messages) {
            // A rank that has ended is named below, the same one on every rank.
            let _ended = sender.send(message);
        }
        let received = from.iter().enumerate();
        received.map(|(rank, receiver)| receiver.recv().map_err(|_| ended(rank))).collect()
    }

    fn abort(&self, exit_code: i32) -> ! {
        std::process::exit(exit_code)
    }
}
