//! Rewards computed outside this program, by a command, a Python file or an HTTP server. They all
//! use the same [message](protocol) format.

mod cache;
mod carrier;
mod command;
mod http;
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
mod server;
mod servers;
mod settings;
mod suspects;
#[cfg(all(test, unix))]
mod tests;

pub(crate) use self::command::CommandConfig;
pub(crate) use self::http::HttpConfig;
pub(crate) use self::python::PythonConfig;
pub(crate) use self::section::External;
pub(crate) use self::settings::Settings;
