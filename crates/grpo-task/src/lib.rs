#![doc = include_str!("../README.md")]
#![cfg_attr(test, allow(clippy::disallowed_methods, reason = "tests open their own files"))]

pub mod args;
pub mod checkpoint;
pub mod config;
pub mod data;
pub mod device;
pub mod eval;
mod example_hint;
mod file_pattern;
pub mod generate;
pub mod hub;
pub mod interrupt;
pub mod models;
pub mod output;
pub mod phase;
pub mod preflight;
pub mod recorded_device;
pub mod recorded_folders;
pub mod run_files;
pub mod run_log;
pub mod source;
pub mod supervised_run;
pub mod task;
pub mod train_settings;
pub mod training_runs;
pub mod used_inputs;
pub mod violations;
pub mod visible;
pub mod written_by;
mod wrong_folder;
