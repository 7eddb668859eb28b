//! The self-test: that it is clean, that it finds what is wrong, and what it says of files that are no use.

mod files;
mod models;
mod oracle;
mod report;
