//! Rewards computed outside this program, by a command, a Python file or a server. They all use the same
//! format of messages, which a [`Carrier`] takes to them and back. A carrier of another crate registers
//! its section as [`External`], like those here: `RewardKind::external::<MyConfig>("name")`.

mod cache;
mod carrier;
mod command;
mod output;
#[cfg(unix)]
mod process;
#[cfg(not(unix))]
#[path = "external/no_process.rs"]
mod process;
mod protocol;
mod python;
mod reward;
mod section;
mod settings;
mod suspects;
#[cfg(all(test, unix))]
mod tests;

pub use self::carrier::{Carrier, Connection, Fault};
pub(crate) use self::command::CommandConfig;
pub use self::output::Output;
pub use self::protocol::{Format, Shape};
pub(crate) use self::python::PythonConfig;
pub use self::reward::ExternalReward;
pub use self::section::{CarrierConfig, External};
