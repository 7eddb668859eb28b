//! Commands that train, and what they show while they do.

pub(crate) mod before_after;
pub(crate) mod command;
pub(crate) mod dashboard;
pub(crate) mod first_screen;
pub(crate) mod preflight;
pub(crate) mod pretrain;
pub(crate) mod ranks;
pub(crate) mod resume_check;
pub(crate) mod session;
pub(crate) mod trial;
