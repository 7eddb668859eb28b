//! The built program: what it does, and what it refuses.

mod audit;
mod completions;
mod configuration;
mod describe;
mod evaluation;
mod explain;
mod folders;
mod golden_models;
mod guards;
mod judges;
mod logprob;
mod models;
mod molecules;
mod preflight;
mod replay;
mod report;
mod resume;
mod sample;
mod selftest;
mod shipped;
mod supervised;
mod support;
mod texts;
mod training;
mod training_texts;
mod trial;
