//! A scoring function for molecules that combines the desirabilities of several properties.

mod aggregation;
mod config;
mod expression;
mod fields;
mod goals;
mod lists;
mod property;
mod property_names;
mod reward;

pub(crate) use self::config::{ComponentsConfig, Section};

#[cfg(test)]
mod tests;
