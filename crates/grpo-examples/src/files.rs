//! The embedded example files.

/// Path and content of an example file. The path is relative to the project and uses `/` as a
/// separator.
pub type ExampleFile = (&'static str, &'static [u8]);

/// All example files, sorted by path.
pub static FILES: &[ExampleFile] = include!(concat!(env!("OUT_DIR"), "/files.rs"));
