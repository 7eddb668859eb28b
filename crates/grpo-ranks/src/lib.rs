#![doc = include_str!("../README.md")]

mod in_process;
mod launch;
#[cfg(feature = "mpi")]
mod mpi;
mod ranks;
mod transport;

pub use launch::{Launch, launch};
#[cfg(feature = "mpi")]
pub use mpi::{Mpi, Report};
pub use ranks::Ranks;
pub use transport::{RankError, Transport};
