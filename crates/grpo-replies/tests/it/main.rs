//! Tests through the public interface, in one binary.

mod cleaning;
mod pairs;
mod training;
