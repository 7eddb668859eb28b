//! The embedded files.

/// A file of the examples: its path relative to the project, with `/`, and its content.
pub type ExampleFile = (&'static str, &'static [u8]);

/// The example files, sorted by path.
pub static FILES: &[ExampleFile] = include!(concat!(env!("OUT_DIR"), "/files.rs"));
